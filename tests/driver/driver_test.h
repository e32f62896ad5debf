/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the driver's tests share: the kernel's own test harness, calls that
 * return a negative errno, and readers of what the kernel tells.
 */
#ifndef DRIVER_TEST_H
#define DRIVER_TEST_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "kselftest_harness.h"

#include "actmem.h"

/* The emulated machine is slow, and may share its processor with many. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	900

#define PAGE_BYTES	((size_t)ACTMEM_PAGE_BYTES)
#define SYSFS		"/sys/class/misc/actmem"
#define USER		1000
#define OTHER_USER	1001
#define POOR_USER	1003

static inline int call(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg) < 0 ? -errno : 0;
}

/* Returns a result that is not an error. Ends the test with a failure otherwise. */
static inline int must(int result)
{
	if (result >= 0)
		return result;
	fprintf(stderr, "# failed: %s\n", strerror(-result));
	abort();
}

/* Returns the address of a mapping. Ends the test with a failure if there is none. */
static inline void *mapped(void *memory)
{
	if (memory == MAP_FAILED)
		must(-errno);
	return memory;
}

/* Expects that a call returns -1, or MAP_FAILED, with this errno. */
#define EXPECT_ERRNO(error, call)	EXPECT_EQ(-(error), (long)(call) == -1 ? -errno : 0)

static inline struct actmem_ioctl_query query_arg(void)
{
	struct actmem_ioctl_query arg = {
		.size = sizeof(arg),
		.abi = ACTMEM_ABI_VERSION,
		.abi_oldest = ACTMEM_ABI_OLDEST,
	};

	return arg;
}

/* Arguments for a region of so many pages, anywhere. */
static inline struct actmem_ioctl_create region_of(size_t pages)
{
	struct actmem_ioctl_create arg = {
		.size = sizeof(arg),
		.length = pages * PAGE_BYTES,
		.page_bytes = PAGE_BYTES,
		.policy = ACTMEM_POLICY_PREFERRED,
	};

	return arg;
}

/* The nodes are a mask, of the first 64. */
static inline struct actmem_ioctl_create region_on(size_t pages, uint32_t policy, uint64_t nodes)
{
	struct actmem_ioctl_create arg = region_of(pages);

	arg.policy = policy;
	arg.nodes[0] = nodes;
	return arg;
}

/* No flag of the driver's: create() is to leave the region without pages. */
#define LAZY	(1U << 31)

/* All of them, if the region at @fd is not to be lazy; else, or if that fails, @arg tells. */
static inline int populate_created(int fd, struct actmem_ioctl_create *arg)
{
	struct actmem_ioctl_range range = { .size = sizeof(range), .length = arg->length };
	int err = arg->flags & LAZY ? 0 : call(fd, ACTMEM_IOC_POPULATE, &range);

	if (err)
		arg->why = range.why;
	return err;
}

/* ACTMEM_IOC_CREATE alone, of whatever flags. */
static inline int create_empty(int fd, struct actmem_ioctl_create *arg)
{
	uint32_t flags = arg->flags;
	int err;

	arg->flags &= ~LAZY;
	err = call(fd, ACTMEM_IOC_CREATE, arg);
	arg->flags = flags;
	return err;
}

/* The descriptor, or a negative errno; with all its pages, as the library makes regions. */
static inline int create(int device, struct actmem_ioctl_create *arg)
{
	int err = create_empty(device, arg);

	if (err)
		return err;
	err = populate_created(arg->fd, arg);
	if (!err)
		return arg->fd;
	close(arg->fd);
	arg->fd = -1;
	arg->id = 0;
	return err;
}

static inline int create_pages(int device, size_t pages)
{
	struct actmem_ioctl_create arg = region_of(pages);

	return create(device, &arg);
}

static inline struct actmem_ioctl_create lazy_region_of(size_t pages)
{
	struct actmem_ioctl_create arg = region_of(pages);

	arg.flags = LAZY;
	return arg;
}

static inline int create_lazy(int device, size_t pages)
{
	struct actmem_ioctl_create arg = lazy_region_of(pages);

	return create(device, &arg);
}

static inline struct actmem_ioctl_range range_of(size_t first, size_t pages)
{
	struct actmem_ioctl_range arg = {
		.size = sizeof(arg),
		.offset = first * PAGE_BYTES,
		.length = pages * PAGE_BYTES,
	};

	return arg;
}

/* ACTMEM_IOC_POPULATE or _DISCARD of whole pages, with all that it answers. */
static inline int change_range(int fd, unsigned long request, size_t first, size_t pages,
			       struct actmem_ioctl_range *arg)
{
	*arg = range_of(first, pages);
	return call(fd, request, arg);
}

static inline int populate(int fd, size_t first, size_t pages)
{
	struct actmem_ioctl_range arg;

	return change_range(fd, ACTMEM_IOC_POPULATE, first, pages, &arg);
}

static inline int discard(int fd, size_t first, size_t pages)
{
	struct actmem_ioctl_range arg;

	return change_range(fd, ACTMEM_IOC_DISCARD, first, pages, &arg);
}

/*
 * An instant after pages have been unmapped the kernel may still have them, and who is
 * told that a holder is gone may be told a moment too early.
 */
static inline int discard_patiently(int fd, size_t first, size_t pages)
{
	int tries = 1000, err;

	do {
		err = discard(fd, first, pages);
	} while (err == -EBUSY && --tries && !usleep(1000));
	return err;
}

/* Of the region that is open as @fd, or has @id on the device. */
static inline int info(int fd, uint64_t id, struct actmem_ioctl_info *arg)
{
	memset(arg, 0, sizeof(*arg));
	arg->size = sizeof(*arg);
	arg->id = id;
	return call(fd, ACTMEM_IOC_INFO, arg);
}

/* In pages; -1 if the region cannot be asked. */
static inline long pages_held(int fd)
{
	struct actmem_ioctl_info now;

	return info(fd, 0, &now) ? -1 : (long)(now.allocated_bytes / PAGE_BYTES);
}

static inline long demand_faults(int fd)
{
	struct actmem_ioctl_info now;

	return info(fd, 0, &now) ? -1 : (long)now.demand_faults;
}

/* How many regions the caller may see; the first @count ids go to @ids. */
static inline int list(int device, uint64_t *ids, unsigned int count)
{
	struct actmem_ioctl_list arg = {
		.size = sizeof(arg),
		.ids = (uintptr_t)ids,
		.count = count,
	};
	int err = call(device, ACTMEM_IOC_LIST, &arg);

	return err ? err : (int)arg.count;
}

/* Another descriptor of what is open as @fd, or a negative errno. */
static inline int reopen(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static inline void *map(int fd, size_t pages)
{
	return mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static inline void *map_and_touch(int fd, size_t pages)
{
	char *memory = map(fd, pages);
	size_t i;

	if (memory != MAP_FAILED)
		for (i = 0; i < pages; i++)
			memory[i * PAGE_BYTES] = 1;
	return memory;
}

/* The signal that kills a child which touches one page after the other; 0 if none does. */
static inline int touch_to_death(int fd, size_t pages)
{
	pid_t child = fork();
	int status;

	if (!child) {
		map_and_touch(fd, pages);
		_exit(0);
	}
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* A number in a file, -1 if there is none. */
__attribute__((format(printf, 1, 2)))
static inline long number_in(const char *format, ...)
{
	char path[PATH_MAX];
	long number = -1;
	va_list words;
	FILE *file;

	va_start(words, format);
	vsnprintf(path, sizeof(path), format, words);
	va_end(words);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%ld", &number) != 1)
		number = -1;
	fclose(file);
	return number;
}

/* Writes to a file that exists: 0 or a negative errno. */
static inline int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int err = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

/* A limit in sysfs; none if it is negative. */
static inline int set_limit(const char *path, long pages)
{
	char text[32] = "max";

	if (pages >= 0)
		snprintf(text, sizeof(text), "%zu", (size_t)pages * PAGE_BYTES);
	return put(path, text);
}

static inline int set_node_limit(int node, long pages)
{
	char path[64];

	snprintf(path, sizeof(path), SYSFS "/node%d/limit_bytes", node);
	return set_limit(path, pages);
}

/* Of /sys/devices/system/node/nodeN/meminfo. */
static inline size_t node_memory(int node, const char *key)
{
	char path[64], line[256], name[64];
	size_t bytes = 0, kib;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Node %*d %63[^:]: %zu kB", name, &kib) == 2 &&
		    !strcmp(name, key))
			bytes = kib * 1024;
	fclose(file);
	return bytes;
}

/* What /proc/zoneinfo counts in pages, by that name, over the zones of a node. */
static inline size_t zones_memory(int node, const char *name)
{
	FILE *file = fopen("/proc/zoneinfo", "re");
	char line[256], found[64];
	size_t pages = 0, count;
	int here = -1;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Node %d, zone", &here) != 1 && here == node &&
		    sscanf(line, " %63s %zu", found, &count) == 2 && !strcmp(found, name))
			pages += count;
	if (file)
		fclose(file);
	return pages * 4096;
}

/*
 * Free pages, with those that each processor keeps at hand, of which
 * MemFree knows nothing.
 */
static inline size_t unused_memory(int node)
{
	return zones_memory(node, "nr_free_pages") + zones_memory(node, "count:");
}

/* The node of each small page, all of which must be the same; -1 if not. */
static inline int node_of(char *memory)
{
	static void *pages[512];
	static int nodes[512];
	size_t i;

	for (i = 0; i < 512; i++)
		pages[i] = memory + i * 4096;
	*(volatile char *)memory;
	if (syscall(SYS_move_pages, 0, 512, pages, NULL, nodes, 0))
		return -1;
	for (i = 1; i < 512; i++)
		if (nodes[i] != nodes[0])
			return -1;
	return nodes[0];
}

/* A pipe that holds the small page at @memory; [0] is its reading end. */
static inline int hold(void *memory, int ends[2])
{
	struct iovec vector = { memory, 4096 };

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	return vmsplice(ends[1], &vector, 1, 0) == 4096 ? 0 : -errno;
}

static inline void let_go(int ends[2])
{
	close(ends[0]);
	close(ends[1]);
}

/* Over all nodes; -1 if there is no node. */
static inline long node_sum(const char *name)
{
	struct dirent *entry;
	DIR *directory = opendir(SYSFS);
	long sum = -1;

	if (!directory)
		return -1;
	while ((entry = readdir(directory))) {
		long number;

		if (strncmp(entry->d_name, "node", 4))
			continue;
		number = number_in(SYSFS "/%s/%s", entry->d_name, name);
		if (number < 0) {
			sum = -1;
			break;
		}
		sum = (sum < 0 ? 0 : sum) + number;
	}
	closedir(directory);
	return sum;
}

/* In pages, of the regions that a user has made; -1 if they cannot be asked. */
static inline long user_pages(int device, uid_t user)
{
	struct actmem_ioctl_info now;
	uint64_t ids[64];
	int count = list(device, ids, 64), i;
	long pages = 0;

	if (count < 0 || count == 64)
		return -1;
	for (i = 0; i < count; i++) {
		int err = info(device, ids[i], &now);

		if (err && err != -ENOENT)
			return -1;
		if (!err && now.uid == user)
			pages += now.allocated_bytes / PAGE_BYTES;
	}
	return pages;
}

/* A line of /proc/self/smaps, in bytes, summed over the mappings in a range. */
static inline long smaps_bytes(const void *address, size_t length, const char *key)
{
	unsigned long begin, end, from = (uintptr_t)address;
	bool inside = false;
	char line[512];
	long sum = 0;
	FILE *file = fopen("/proc/self/smaps", "re");

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = begin >= from && end <= from + length;
		else if (inside && !strncmp(line, key, strlen(key)) && line[strlen(key)] == ':')
			sum += atol(line + strlen(key) + 1) * 1024;
	}
	fclose(file);
	return sum;
}

static inline size_t pmd_mapped(const void *address, size_t length)
{
	return smaps_bytes(address, length, "FilePmdMapped");
}

#include "process_test.h"

static inline int open_device(void)
{
	int fd = open("/dev/actmem", O_RDWR | O_CLOEXEC);

	return must(fd < 0 ? -errno : fd);
}

static inline int is_refused_pages(int device)
{
	size_t pages = node_memory(0, "MemTotal") / PAGE_BYTES / 2;
	int err;

	CHECK(!set_memlock(0));
	err = create_pages(device, pages);
	CHECK(err == -ENOMEM || err == -EDQUOT);
	return 0;
}

/*
 * Readers see lingering regions as the last sweep saw them. The driver sweeps once a
 * second, and before it refuses pages: a user asks for more than any limit of these tests.
 */
static inline void sweep_lingering(void)
{
	int device;

	if (number_in(SYSFS "/lingering_regions") <= 0)
		return;
	device = open_device();
	if (as_user(POOR_USER, is_refused_pages, device))
		must(-EINVAL);
	close(device);
}

static inline long regions(void)
{
	sweep_lingering();
	return number_in(SYSFS "/regions");
}

static inline long lingering_regions(void)
{
	sweep_lingering();
	return number_in(SYSFS "/lingering_regions");
}

FIXTURE(driver)
{
	int device;
};

FIXTURE_SETUP(driver)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
}

FIXTURE_TEARDOWN(driver)
{
	close(self->device);
}

/*
 * The last test of each program. It has a fixture since the harness runs the
 * tests that have none first.
 */
#define TEST_NOTHING_IS_LEFT						\
FIXTURE(at_the_end) { };						\
FIXTURE_SETUP(at_the_end) { }						\
FIXTURE_TEARDOWN(at_the_end) { }					\
TEST_F(at_the_end, nothing_is_left)					\
{									\
	EXPECT_EQ(0, regions());					\
	EXPECT_EQ(0, lingering_regions());				\
	EXPECT_EQ(0, node_sum("region_bytes"));				\
	EXPECT_EQ(0, node_sum("lingering_bytes"));			\
}

#endif
