// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Each allocation and each copy from and to user space fails once, in every
 * call of the driver: the call tells of it by its errno and leaves nothing.
 *
 * Needs a kernel with fault injection: /proc/self/task/TID/fail-nth has the
 * N-th one in this task fail, and reads as 0 once it has.
 */
#include "driver_test.h"

#define PAGES	3
/* More than any call can come to. */
#define MANY	1000

#define MODULE	"/vm/modules/actmem.ko"

/* Which faults count: all, or those below functions of the module, or of any's init. */
enum where { ANYWHERE, IN_MODULE, IN_INIT };

/*
 * A call of the driver: @act is what faults go into; it returns 0 or a
 * negative errno. @prepare and @undo return 0 or the line where it went wrong.
 */
struct operation {
	int fd;
	char *memory;
	uint64_t id;
	enum where where;
	/* So many faults are known to be there. */
	int least;
	int (*prepare)(struct operation *self, int device);
	int (*act)(struct operation *self, int device);
	int (*undo)(struct operation *self, int device, int result);
};

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int err = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

static int put_fault(const char *kind, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", kind, name);
	return put(path, text);
}

static unsigned long hex_in(const char *path)
{
	unsigned long number = 0;
	FILE *file = fopen(path, "re");

	if (file && fscanf(file, "%lx", &number) != 1)
		number = 0;
	if (file)
		fclose(file);
	return number;
}

/* A function of the kernel, up to the next one. */
static int find_function(const char *name, unsigned long *start, unsigned long *end)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	unsigned long address;
	char symbol[256];

	CHECK(file);
	*start = *end = 0;
	while (fscanf(file, "%lx %*c %255s%*[^\n]", &address, symbol) == 2) {
		if (!strcmp(symbol, name))
			*start = address;
		else if (*start && address > *start) {
			*end = address;
			break;
		}
	}
	fclose(file);
	CHECK(*end);
	return 0;
}

/* The kernel's own messages about them are not wanted. */
static int choose_faults(enum where where)
{
	static const char *const kinds[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
	unsigned long start = 0, end = ULONG_MAX;
	char text[32];
	size_t i;

	if (where == IN_INIT) {
		CHECK(!find_function("do_one_initcall", &start, &end));
	} else if (where == IN_MODULE) {
		start = hex_in("/sys/module/actmem/sections/.text");
		CHECK(start);
		end = start + number_in("/sys/module/actmem/coresize");
	}
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		CHECK(!put_fault(kinds[i], "verbose", "0"));
		CHECK(!put_fault(kinds[i], "stacktrace-depth", "32"));
		snprintf(text, sizeof(text), "0x%lx", start);
		CHECK(!put_fault(kinds[i], "require-start", text));
		snprintf(text, sizeof(text), "0x%lx", end);
		CHECK(!put_fault(kinds[i], "require-end", text));
	}
	CHECK(!put_fault("failslab", "ignore-gfp-wait", "N"));
	CHECK(!put_fault("fail_page_alloc", "ignore-gfp-wait", "N"));
	CHECK(!put_fault("fail_page_alloc", "ignore-gfp-highmem", "N"));
	CHECK(!put_fault("fail_page_alloc", "min-order", "0"));
	return 0;
}

static int arm(int fail_nth, int nth)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%d", nth);

	return pwrite(fail_nth, text, length, 0) == length ? 0 : -errno;
}

/* How many more it would have taken; 0: there was a fault. */
static int disarm(int fail_nth)
{
	char text[16] = "";
	ssize_t length = pread(fail_nth, text, sizeof(text) - 1, 0);

	/* The fault may have been left for these very calls; then it is over. */
	if (length < 0 && errno == EFAULT)
		return 1;
	if (arm(fail_nth, 0) && arm(fail_nth, 0))
		return -1;
	return length <= 0 ? -1 : atoi(text);
}

static int nothing_is_left(void)
{
	CHECK(regions() == 0);
	CHECK(lingering_regions() == 0);
	CHECK(node_sum("region_bytes") == 0);
	CHECK(node_sum("lingering_bytes") == 0);
	return 0;
}

/* Until there is no N-th place any more. Returns 0 or the line that is wrong. */
static int sweep(struct operation *operation, int device)
{
	int nth, left = 0, result, failures = 0, line, fail_nth;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%ld/fail-nth", syscall(SYS_gettid));
	fail_nth = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fail_nth >= 0);
	line = choose_faults(operation->where);
	if (line)
		return line;
	for (nth = 1; !left; nth++) {
		CHECK(nth < MANY);
		line = operation->prepare ? operation->prepare(operation, device) : 0;
		if (line)
			return line;
		CHECK(!arm(fail_nth, nth));
		result = operation->act(operation, device);
		left = disarm(fail_nth);
		CHECK(left >= 0);
		if (result && (left || (result != -ENOMEM && result != -EFAULT))) {
			fprintf(stderr, "# fault %d, %s: %s\n", nth,
				left ? "not reached" : "reached", strerror(-result));
			return __LINE__;
		}
		failures += result < 0;
		line = operation->undo(operation, device, result);
		if (!line)
			line = nothing_is_left();
		if (line) {
			fprintf(stderr, "# after fault %d: %s\n", nth, strerror(-result));
			return line;
		}
	}
	close(fail_nth);
	fprintf(stderr, "# %d faults, %d of them failed the call\n", nth - 2, failures);
	CHECK(failures >= operation->least);
	return 0;
}

#define EXPECT_SWEEP(operation, device)	do {				\
	if (access("/proc/self/fail-nth", W_OK))			\
		SKIP(return, "the kernel has no fault injection");	\
	EXPECT_EQ(0, sweep(&(operation), device));			\
} while (0)

static int unload(struct operation *self, int device)
{
	CHECK(!syscall(SYS_delete_module, "actmem", O_NONBLOCK));
	return 0;
}

static int load(struct operation *self, int device)
{
	int fd = open(MODULE, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

/* What could not be loaded can be at the next time. */
static int load_again(struct operation *self, int device, int result)
{
	return result && load(self, device) ? __LINE__ : 0;
}

/* The only test that has no fixture: nobody may have the device open. */
TEST(load_the_module)
{
	struct operation operation = {
		.where = IN_INIT, .least = 8, .prepare = unload, .act = load,
		.undo = load_again,
	};

	EXPECT_SWEEP(operation, -1);
}

static int prepare_region(struct operation *self, int device)
{
	struct actmem_ioctl_info seen;

	self->fd = create_pages(device, PAGES);
	CHECK(self->fd >= 0);
	CHECK(!info(self->fd, 0, &seen));
	self->id = seen.id;
	return 0;
}

static int close_region(struct operation *self, int device, int result)
{
	CHECK(!close(self->fd));
	return 0;
}

static int create_one(struct operation *self, int device)
{
	self->fd = create_pages(device, PAGES);
	return self->fd < 0 ? self->fd : 0;
}

static int create_interleaved(struct operation *self, int device)
{
	struct actmem_ioctl_create arg = region_of(PAGES);

	arg.policy = ACTMEM_POLICY_INTERLEAVE;
	self->fd = create(device, &arg);
	return self->fd < 0 ? self->fd : 0;
}

/* What was created all the same is whole. */
static int check_created(struct operation *self, int device, int result)
{
	struct actmem_ioctl_info seen;

	if (result)
		return 0;
	CHECK(!info(self->fd, 0, &seen));
	CHECK(seen.allocated_bytes == PAGES * PAGE_BYTES);
	CHECK(seen.pinned_bytes == 0);
	return close_region(self, device, result);
}

TEST_F(driver, create)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 8, .act = create_one, .undo = check_created,
	};

	EXPECT_SWEEP(operation, self->device);
}

TEST_F(driver, create_interleaved)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 8, .act = create_interleaved, .undo = check_created,
	};

	EXPECT_SWEEP(operation, self->device);
}

static int ask(struct operation *self, int device)
{
	struct actmem_ioctl_info seen;
	int err = info(self->fd, 0, &seen);

	return err ? err : info(device, self->id, &seen);
}

TEST_F(driver, info)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 4, .prepare = prepare_region, .act = ask,
		.undo = close_region,
	};

	EXPECT_SWEEP(operation, self->device);
}

static int list_all(struct operation *self, int device)
{
	uint64_t ids[4];
	int count = list(device, ids, 4);

	return count < 0 ? count : 0;
}

TEST_F(driver, list)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 2, .prepare = prepare_region, .act = list_all,
		.undo = close_region,
	};

	EXPECT_SWEEP(operation, self->device);
}

static int read_fdinfo(struct operation *self, int device)
{
	char path[64], text[1024];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = read(fd, text, sizeof(text)) < 0 ? -errno : 0;
	close(fd);
	return err;
}

TEST_F(driver, fdinfo)
{
	struct operation operation = {
		.least = 2, .prepare = prepare_region, .act = read_fdinfo, .undo = close_region,
	};

	EXPECT_SWEEP(operation, self->device);
}

/* A page fault that lacks memory is tried again, so that no touch fails. */
static int map_all(struct operation *self, int device)
{
	self->memory = map_and_touch(self->fd, PAGES);
	return self->memory == MAP_FAILED ? -errno : 0;
}

static int check_mapped(struct operation *self, int device, int result)
{
	int i;

	if (!result) {
		for (i = 0; i < PAGES; i++)
			CHECK(self->memory[i * PAGE_BYTES] == 1);
		CHECK(!munmap(self->memory, PAGES * PAGE_BYTES));
	}
	return close_region(self, device, result);
}

TEST_F(driver, map)
{
	struct operation operation = {
		.least = 2, .prepare = prepare_region, .act = map_all, .undo = check_mapped,
	};

	EXPECT_SWEEP(operation, self->device);
}

static int prepare_mapping(struct operation *self, int device)
{
	int line = prepare_region(self, device);

	if (line)
		return line;
	self->memory = map_and_touch(self->fd, PAGES);
	CHECK(self->memory != MAP_FAILED);
	return 0;
}

static int unmap_the_middle(struct operation *self, int device)
{
	return munmap(self->memory + PAGE_BYTES, PAGE_BYTES) ? -errno : 0;
}

/* Both ends hold what was written, and the middle does if it is still there. */
static int check_unmapped(struct operation *self, int device, int result)
{
	CHECK(self->memory[0] == 1);
	CHECK(self->memory[2 * PAGE_BYTES] == 1);
	CHECK(!result || self->memory[PAGE_BYTES] == 1);
	CHECK(!munmap(self->memory, PAGES * PAGE_BYTES));
	return close_region(self, device, result);
}

TEST_F(driver, unmap_a_part)
{
	struct operation operation = {
		.least = 1, .prepare = prepare_mapping, .act = unmap_the_middle,
		.undo = check_unmapped,
	};

	EXPECT_SWEEP(operation, self->device);
}

/* Ending a region needs no memory, so that it cannot fail. */
static int close_it(struct operation *self, int device)
{
	return close(self->fd) ? -errno : 0;
}

static int check_closed(struct operation *self, int device, int result)
{
	return result ? __LINE__ : 0;
}

TEST_F(driver, close)
{
	struct operation operation = {
		.prepare = prepare_region, .act = close_it, .undo = check_closed,
	};

	EXPECT_SWEEP(operation, self->device);
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
