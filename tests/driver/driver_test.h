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

#include "kselftest_harness.h"

#include "actmem.h"

/* The emulated machine is slow, and may share its processor. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	300

#define PAGE_BYTES	((size_t)ACTMEM_PAGE_BYTES)
#define SYSFS		"/sys/class/misc/actmem"
#define USER		1000
#define OTHER_USER	1001

static inline int call(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg) < 0 ? -errno : 0;
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

/* The descriptor, or a negative errno. */
static inline int create(int device, struct actmem_ioctl_create *arg)
{
	int err = call(device, ACTMEM_IOC_CREATE, arg);

	return err ? err : arg->fd;
}

static inline int create_pages(int device, size_t pages)
{
	struct actmem_ioctl_create arg = region_of(pages);

	return create(device, &arg);
}

/* Of the region that is open as @fd, or has @id on the device. */
static inline int info(int fd, uint64_t id, struct actmem_ioctl_info *arg)
{
	memset(arg, 0, sizeof(*arg));
	arg->size = sizeof(*arg);
	arg->id = id;
	return call(fd, ACTMEM_IOC_INFO, arg);
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

static inline long regions(void)
{
	return number_in(SYSFS "/regions");
}

static inline long lingering_regions(void)
{
	return number_in(SYSFS "/lingering_regions");
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

/* For good, with no capability left; the device stays open. */
static inline int become(uid_t user)
{
	return setresgid(user, user, user) || setresuid(user, user, user) ? -errno : 0;
}

/* The exit status of a child, -1 if it ended otherwise. */
static inline int wait_for(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/*
 * Runs a function in a child as another user. Its result, 0 for good, is the
 * number of the line where it went wrong, see CHECK().
 */
static inline int as_user(uid_t user, int (*function)(int), int device)
{
	pid_t child = fork();
	int line;

	if (child)
		return wait_for(child);
	if (become(user))
		_exit(255);
	line = function(device);
	if (line)
		fprintf(stderr, "# line %d fails in the child\n", line);
	_exit(line ? 1 : 0);
}

#define CHECK(condition) do { if (!(condition)) return __LINE__; } while (0)

static inline int set_memlock(size_t bytes)
{
	struct rlimit limit = { bytes, bytes };

	return setrlimit(RLIMIT_MEMLOCK, &limit) ? -errno : 0;
}

FIXTURE(driver)
{
	int device;
};

FIXTURE_SETUP(driver)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
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
