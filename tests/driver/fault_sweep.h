/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Has each fault of a call happen in turn.
 *
 * Needs a kernel with fault injection: /proc/self/task/TID/fail-nth has the
 * N-th one in that task fail, and reads as 0 once it has.
 */
#ifndef FAULT_SWEEP_H
#define FAULT_SWEEP_H

#include "driver_test.h"

/* More than any call can come to. */
#define MANY	1000

/* How often the places are gone through to fail each of those that are known. */
#define SWEEPS	3

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

static inline int put_fault(const char *kind, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", kind, name);
	return put(path, text);
}

static inline unsigned long hex_in(const char *path)
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
static inline int find_function(const char *name, unsigned long *start, unsigned long *end)
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

static inline int put_fault_address(const char *kind, const char *name, unsigned long address)
{
	char text[32];

	snprintf(text, sizeof(text), "0x%lx", address);
	return put_fault(kind, name, text);
}

/*
 * What the kernel allocates by the way is not what the call asked for: the notes of
 * the leak detector, and pages for its slabs, which it can do without for once. They
 * would shift the places behind them from one call to the next, so that some of those
 * were passed over.
 */
static inline int leave_out_bookkeeping(void)
{
	unsigned long start, end;
	struct dirent *entry;
	char path[300];
	DIR *caches;

	caches = opendir("/sys/kernel/slab");
	CHECK(caches);
	while ((entry = readdir(caches))) {
		if (*entry->d_name == '.' || !strncmp(entry->d_name, "kmemleak", 8))
			continue;
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/failslab", entry->d_name);
		CHECK(!put(path, "1"));
	}
	closedir(caches);
	CHECK(!put_fault("failslab", "cache-filter", "Y"));
	CHECK(!find_function("allocate_slab", &start, &end));
	CHECK(!put_fault_address("failslab", "reject-start", start));
	CHECK(!put_fault_address("failslab", "reject-end", end));
	CHECK(!put_fault_address("fail_page_alloc", "reject-start", start));
	CHECK(!put_fault_address("fail_page_alloc", "reject-end", end));
	return 0;
}

/* The kernel's own messages about them are not wanted. */
static inline int choose_faults(enum where where)
{
	static const char *const kinds[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
	unsigned long start = 0, end = ULONG_MAX;
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
		CHECK(!put_fault_address(kinds[i], "require-start", start));
		CHECK(!put_fault_address(kinds[i], "require-end", end));
	}
	CHECK(!put_fault("failslab", "ignore-gfp-wait", "N"));
	CHECK(!put_fault("fail_page_alloc", "ignore-gfp-wait", "N"));
	CHECK(!put_fault("fail_page_alloc", "ignore-gfp-highmem", "N"));
	CHECK(!put_fault("fail_page_alloc", "min-order", "0"));
	CHECK(!leave_out_bookkeeping());
	return 0;
}

static inline int arm(int fail_nth, int nth)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%d", nth);

	return pwrite(fail_nth, text, length, 0) == length ? 0 : -errno;
}

/* How many more it would have taken; 0: there was a fault. */
static inline int disarm(int fail_nth)
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

static inline int nothing_is_left(void)
{
	CHECK(regions() == 0);
	CHECK(lingering_regions() == 0);
	CHECK(node_sum("region_bytes") == 0);
	CHECK(node_sum("lingering_bytes") == 0);
	return 0;
}

/*
 * Until there is no N-th place any more. Returns 0 or the line that is wrong; how
 * often the call failed goes to @failures.
 */
static inline int sweep_once(struct operation *operation, int device, int fail_nth, int *failures)
{
	int nth, left = 0, result, line;

	*failures = 0;
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
		*failures += result < 0;
		line = operation->undo(operation, device, result);
		if (!line)
			line = nothing_is_left();
		if (line) {
			fprintf(stderr, "# after fault %d: %s\n", nth, strerror(-result));
			return line;
		}
	}
	fprintf(stderr, "# %d faults, %d of them failed the call\n", nth - 2, *failures);
	return 0;
}

/* Now and then one of the kernel's own comes in between all the same. */
static inline int sweep(struct operation *operation, int device)
{
	int failures = 0, tries = 0, line, fail_nth;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%ld/fail-nth", syscall(SYS_gettid));
	fail_nth = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fail_nth >= 0);
	line = choose_faults(operation->where);
	while (!line && failures < operation->least && tries++ < SWEEPS)
		line = sweep_once(operation, device, fail_nth, &failures);
	close(fail_nth);
	if (line)
		return line;
	CHECK(failures >= operation->least);
	return 0;
}

#define EXPECT_SWEEP(operation, device)	do {				\
	if (access("/proc/self/fail-nth", W_OK))			\
		SKIP(return, "the kernel has no fault injection");	\
	EXPECT_EQ(0, sweep(&(operation), device));			\
} while (0)

/* The pages of a region that is swept. */
#define PAGES	4

static inline int prepare_region(struct operation *self, int device)
{
	struct actmem_ioctl_info seen;

	self->fd = create_pages(device, PAGES);
	CHECK(self->fd >= 0);
	CHECK(!info(self->fd, 0, &seen));
	self->id = seen.id;
	return 0;
}

static inline int close_region(struct operation *self, int device, int result)
{
	CHECK(!close(self->fd));
	return 0;
}

/* A test that is nothing but a sweep. */
#define TEST_SWEEP(fixture, name, ...)				\
TEST_F(fixture, name)						\
{								\
	struct operation operation = { __VA_ARGS__ };		\
								\
	EXPECT_SWEEP(operation, self->device);			\
}

#endif
