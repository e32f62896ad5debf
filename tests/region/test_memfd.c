/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The memfd backend when system calls fail: every error path unwinds, and says
 * what failed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "actmem.h"
#include "machine/node.h"
#include "faults.h"

#define LENGTH	(64ULL << 10)

static struct actmem *am;

/* In each test's begin and end; others than the usual pages are opened by the test. */
static int set_up(void **state)
{
	return open_memfd(&am, ACTMEM_PAGES_4K, 0);
}

static int tear_down(void **state)
{
	fail_nothing();
	return actmem_close(am);
}

static void reopen(enum actmem_pages pages, uint32_t allow)
{
	assert_int_equal(actmem_close(am), 0);
	assert_int_equal(open_memfd(&am, pages, allow), 0);
}

static int create_with(enum actmem_policy policy, uint64_t length, uint32_t flags,
		       struct actmem_region **region)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = length, .flags = flags, .policy = policy,
		.nodes.word[0] = policy == ACTMEM_PLACE_PREFERRED ? 0 : 1, .name = "unit",
	};

	return actmem_region_create(am, &options, region);
}

static int create_lazy(enum actmem_policy policy, struct actmem_region **region)
{
	return create_with(policy, LENGTH, ACTMEM_REGION_LAZY, region);
}

static int create_huge(struct actmem_region **region)
{
	return create_with(ACTMEM_PLACE_BIND, HUGE_PAGE_BYTES, 0, region);
}

static int create(enum actmem_policy policy, struct actmem_region **region)
{
	return create_with(policy, LENGTH, 0, region);
}

static uint64_t fallbacks(void)
{
	struct actmem_counters counters = { .size = sizeof(counters) };

	assert_int_equal(actmem_get_counters(am, &counters), 0);
	return counters.fallbacks_total;
}

/* All that a program does; stops at the first failure and cleans up. */
static int whole_life(void *context)
{
	enum actmem_policy policy = *(const enum actmem_policy *)context;
	struct actmem_region *region = NULL, *second = NULL, *lazy = NULL;
	struct actmem_region_info info = { .size = sizeof(info) };
	void *address;
	int error = open_memfd(&am, ACTMEM_PAGES_4K, 0);

	if (error)
		return error;
	error = create(policy, &region);
	if (!error)
		error = actmem_region_map(region, &address);
	if (!error)
		error = actmem_region_get_info(region, &info);
	if (!error)
		error = actmem_region_from_fd(am, actmem_region_fd(region), &second);
	if (!error)
		error = create_lazy(policy, &lazy);
	if (!error)
		error = actmem_region_populate(lazy, 0, LENGTH);
	if (!error)
		error = actmem_region_discard(lazy, 0, LENGTH);
	if (!error)
		error = live_of_heap(am, HUGE_PAGE_BYTES);
	if (lazy)
		assert_int_equal(actmem_region_close(lazy), 0);
	if (second)
		assert_int_equal(actmem_region_close(second), 0);
	if (region)
		assert_int_equal(actmem_region_close(region), 0);
	/* Also asserts that nothing that failed is still counted as open. */
	assert_int_equal(actmem_close(am), 0);
	return error;
}

static void test_sweep(void **state)
{
	enum actmem_policy policies[] = { ACTMEM_PLACE_BIND, ACTMEM_PLACE_INTERLEAVE };

	fail_each(whole_life, &policies[0], 20);
	fail_each(whole_life, &policies[1], 20);
}

struct fault {
	const char *call;
	unsigned int nth;
	int error;
	int wanted;
	const char *words;
	enum actmem_policy policy;
};

/* What each call's failure is called; the first call of a name is meant. */
static const struct fault faults[] = {
	{ "memfd_create", 1, ENFILE, ENFILE, "memfd_create", ACTMEM_PLACE_BIND },
	{ "ftruncate", 1, ENOMEM, ENOMEM, "64.0 KiB", ACTMEM_PLACE_BIND },
	{ "fcntl", 1, EPERM, EPERM, "64.0 KiB", ACTMEM_PLACE_BIND },
	{ "mmap", 1, ENOMEM, ENOMEM, "cannot map 64.0 KiB", ACTMEM_PLACE_BIND },
	{ "madvise", 1, EINVAL, EINVAL, "core dumps", ACTMEM_PLACE_BIND },
	{ "madvise", 4, ENOMEM, ENOMEM, "cannot populate 64.0 KiB of 4 KiB pages", ACTMEM_PLACE_BIND },
	{ "madvise", 4, EFAULT, ENOMEM, "cannot populate", ACTMEM_PLACE_BIND },
	{ "madvise", 4, EHWPOISON, EHWPOISON, "cannot populate", ACTMEM_PLACE_BIND },
	{ "madvise", 5, ENOMEM, ENOMEM, "cannot populate 4.0 KiB", ACTMEM_PLACE_INTERLEAVE },
	{ "mlock2", 1, ENOMEM, ENOMEM, "ulimit -l", ACTMEM_PLACE_BIND },
	{ "mlock2", 1, EPERM, EPERM, "seccomp", ACTMEM_PLACE_BIND },
	{ "mlock2", 1, EINVAL, EINVAL, "mlock", ACTMEM_PLACE_BIND },
	{ "mbind", 1, EIO, EIO, "cannot bind memory to node 0", ACTMEM_PLACE_BIND },
	{ "mbind", 2, ENOMEM, ENOMEM, "mbind", ACTMEM_PLACE_INTERLEAVE },
	{ "move_pages", 1, EFAULT, EFAULT, "move_pages", ACTMEM_PLACE_BIND },
	{ "move_pages", 2, EFAULT, EFAULT, "move_pages", ACTMEM_PLACE_BIND },
	{ "fstat", 1, EIO, EIO, "fstat", ACTMEM_PLACE_BIND },
};

static void test_words(void **state)
{
	struct holdings before = held_now();
	struct actmem_region *region;
	unsigned int i;

	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		fail_call(faults[i].call, faults[i].nth, faults[i].error);
		assert_fails(create(faults[i].policy, &region), faults[i].wanted,
			     faults[i].words);
		fail_nothing();
		assert_same_held(before);
	}
	assert_int_equal(fallbacks(), 0);
}

/* Where so many bytes of a region lie, as its process tells others. */
static void assert_published(struct actmem_region *region, uint64_t bytes)
{
	struct actmem_region_info info, *list;
	uint64_t sum = 0;
	size_t count, i;
	uint32_t node;

	ACTMEM_INIT(&info);
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_int_equal(info.allocated_bytes, bytes);
	assert_int_equal(actmem_region_list(&list, &count), 0);
	for (i = 0; i < count && (list[i].pid != getpid() || list[i].id != info.id); i++)
		;
	assert_true(i < count);
	for (node = 0; node < list[i].node_count; node++)
		sum += list[i].node_bytes[node];
	free(list);
	assert_int_equal(sum, bytes);
}

static void test_range_words(void **state)
{
	struct actmem_region_info info = { .size = sizeof(info) };
	struct actmem_region *region;
	struct holdings before;

	assert_int_equal(create_lazy(ACTMEM_PLACE_INTERLEAVE, &region), 0);
	before = held_now();
	assert_fails(actmem_region_populate(region, 4096, LENGTH), EINVAL,
		     "65536 bytes at 4096 are not a range of whole pages of 4.0 KiB in a region of 64.0 KiB");
	assert_fails(actmem_region_discard(region, 0, 0), EINVAL, "not a range of whole pages");
	fail_call("madvise", 1, ENOMEM);
	assert_fails(actmem_region_populate(region, 4096, 8192), ENOMEM, "cannot populate 4.0 KiB");
	fail_call("mbind", 1, EIO);
	assert_fails(actmem_region_populate(region, 4096, 8192), EIO, "mbind");
	fail_call("mbind", 2, EIO);
	assert_fails(actmem_region_populate(region, 4096, 8192), EIO, "mbind");
	fail_nothing();
	fake_node(1);
	assert_fails(actmem_region_populate(region, 4096, 8192), EIO, "page 1 is on node 1");
	fail_nothing();
	/* The first page came, and others are told of it, if they can be told. */
	assert_int_equal(actmem_region_discard(region, 0, LENGTH), 0);
	fail_call("madvise", 2, ENOMEM);
	assert_fails(actmem_region_populate(region, 4096, 8192), ENOMEM, "cannot populate 4.0 KiB");
	fail_nothing();
	assert_published(region, 4096);
	fail_call("punch", 1, EINTR);
	assert_int_equal(actmem_region_discard(region, 0, LENGTH), 0);
	fail_call("punch", 1, ENOSPC);
	assert_fails(actmem_region_discard(region, 0, LENGTH), ENOSPC, "cannot discard 64.0 KiB");
	fail_call("fstat", 1, EIO);
	assert_fails(actmem_region_discard(region, 0, LENGTH), EIO, "fstat");
	fail_nothing();
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_int_equal(info.allocated_bytes, 0);
	assert_same_held(before);
	assert_int_equal(actmem_region_close(region), 0);
}

/* Not swept: how many calls it makes depends on the machine's processes. */
static void test_list(void **state)
{
	const struct fault list_faults[] = {
		{ "opendir", 1, EMFILE, EMFILE, "/proc", 0 },
		{ "opendir", 2, EMFILE, EMFILE, "cannot read what process", 0 },
		{ "opendir", 3, EMFILE, EMFILE, "cannot read the descriptors of process", 0 },
		{ "realloc", 1, ENOMEM, ENOMEM, "no memory for a list", 0 },
		{ "realloc", 2, ENOMEM, ENOMEM, "no memory for a list", 0 },
		{ "calloc", 1, ENOMEM, ENOMEM, "no memory for a list", 0 },
	};
	struct actmem_region_info *list;
	struct actmem_region *region;
	struct holdings before;
	unsigned int i;
	size_t count;

	assert_int_equal(create(ACTMEM_PLACE_BIND, &region), 0);
	before = held_now();
	for (i = 0; i < sizeof(list_faults) / sizeof(list_faults[0]); i++) {
		fail_call(list_faults[i].call, list_faults[i].nth, list_faults[i].error);
		assert_fails(actmem_region_list(&list, &count), list_faults[i].wanted,
			     list_faults[i].words);
		fail_nothing();
		assert_same_held(before);
	}
	assert_int_equal(actmem_region_close(region), 0);
}

static void test_interrupted(void **state)
{
	struct actmem_region *region;
	const int errors[] = { EINTR, EAGAIN };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		fail_call("madvise", 4, errors[i]);
		assert_int_equal(create(ACTMEM_PLACE_BIND, &region), 0);
		assert_int_equal(actmem_region_close(region), 0);
	}
}

static void test_misplaced(void **state)
{
	struct holdings before = held_now();
	struct actmem_region *region;

	fake_node(1);
	assert_fails(create(ACTMEM_PLACE_BIND, &region), EIO,
		     "page 0 is on node 1, not on node 0 as requested");
	assert_fails(create(ACTMEM_PLACE_INTERLEAVE, &region), EIO, "node 1");
	assert_same_held(before);
	/* Preferred may be elsewhere. */
	assert_int_equal(create(ACTMEM_PLACE_PREFERRED, &region), 0);
	fail_nothing();
	assert_int_equal(actmem_region_close(region), 0);
}

/* As in a container whose seccomp profile forbids both. */
static void test_numa_calls_forbidden(void **state)
{
	static const char *const calls[] = { "mbind", "move_pages" };
	uint64_t node_bytes[ACTMEM_NODES_MAX];
	struct actmem_region_info info;
	struct actmem_region *region;
	unsigned int i, node;

	for (i = 0; i < 2; i++) {
		fail_every(calls[i], EPERM);
		if (!node_is_only_one(&node)) {
			assert_fails(create(ACTMEM_PLACE_BIND, &region), EPERM, "CAP_SYS_NICE");
			continue;
		}
		assert_int_equal(create(ACTMEM_PLACE_BIND, &region), 0);
		ACTMEM_INIT(&info);
		info.node_bytes = node_bytes;
		info.node_count = ACTMEM_NODES_MAX;
		assert_int_equal(actmem_region_get_info(region, &info), 0);
		assert_int_equal(info.node_count, node + 1);
		assert_int_equal(node_bytes[node], LENGTH);
		assert_int_equal(node_bytes[node + 1], 0);
		assert_int_equal(actmem_region_close(region), 0);
	}
}

/* A region allows what its handle allows, even if it allows something itself. */
static void test_unlocked(void **state)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .allow = ACTMEM_ALLOW_NODE,
	};
	struct actmem_region_info info = { .size = sizeof(info) };
	struct actmem_region *region;

	reopen(ACTMEM_PAGES_4K, ACTMEM_ALLOW_UNLOCKED);
	fail_call("mlock2", 1, ENOMEM);
	assert_int_equal(actmem_region_create(am, &options, &region), 0);
	fail_nothing();
	assert_non_null(strstr(actmem_error(), "continued without pinning"));
	assert_int_equal(fallbacks(), 1);
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_int_equal(info.pinned_bytes, 0);
	assert_int_equal(actmem_region_close(region), 0);
}

/* A kernel that has no hugetlb pages, and one whose mapping is refused. */
static void test_no_hugetlb(void **state)
{
	struct actmem_region_info info = { .size = sizeof(info) };
	struct actmem_region *region;

	reopen(ACTMEM_PAGES_2M, 0);
	fail_call("memfd_create", 1, ENODEV);
	assert_fails(create_huge(&region), EOPNOTSUPP, "no 2 MiB hugetlb pages");
	fail_call("mmap", 1, ENOMEM);
	assert_fails(create_huge(&region), ENOMEM, "hugetlb");
	fail_nothing();

	reopen(ACTMEM_PAGES_2M, ACTMEM_ALLOW_4K);
	fail_call("memfd_create", 1, ENODEV);
	assert_int_equal(create_huge(&region), 0);
	fail_nothing();
	assert_non_null(strstr(actmem_error(), "no 2 MiB hugetlb pages"));
	assert_non_null(strstr(actmem_error(), "used 4 KiB pages instead"));
	assert_int_equal(fallbacks(), 1);
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_int_equal(info.page_bytes, 4096);
	assert_int_equal(actmem_region_close(region), 0);
}

/* A failure that smaller pages would not mend ends the steps down. */
static void test_no_step_down(void **state)
{
	struct actmem_region *region;

	reopen(ACTMEM_PAGES_2M, ACTMEM_ALLOW_THP | ACTMEM_ALLOW_4K | ACTMEM_ALLOW_NODE);
	fail_every("memfd_create", EMFILE);
	assert_fails(create_huge(&region), EMFILE, "memfd_create");
	assert_null(strstr(actmem_error(), "; then "));
}

static uint64_t address_space(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long pages;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu", &pages), 1);
	fclose(file);
	return pages * 4096;
}

/* Nothing is left of the room in which a place at a multiple of 2 MiB is found. */
static void test_address_space(void **state)
{
	uint64_t before = address_space();
	struct actmem_region *region;
	unsigned int round;
	void *memory;

	for (round = 0; round < 400; round++) {
		assert_int_equal(create(ACTMEM_PLACE_BIND, &region), 0);
		assert_int_equal(actmem_region_map(region, &memory), 0);
		assert_int_equal((uintptr_t)memory % HUGE_PAGE_BYTES, 0);
		assert_int_equal(actmem_region_unmap(region), 0);
		assert_int_equal(actmem_region_close(region), 0);
	}
	assert_true(address_space() < before + 8 * HUGE_PAGE_BYTES);
}

static void test_file_size_limit(void **state)
{
	struct actmem *second;
	struct actmem_region *region;
	struct rlimit was, limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	limit = was;
	limit.rlim_cur = 4096;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_fails(create(ACTMEM_PLACE_BIND, &region), EFBIG, "ulimit -f");
	assert_fails(open_memfd(&second, ACTMEM_PAGES_4K, 0), EFBIG, "ulimit -f");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
}

/* The limit is finite but high: what fails is the call. */
static void test_address_space_limit(void **state)
{
	struct rlimit was, limit;
	struct actmem_region *region;
	struct actmem *second;

	assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
	limit = was;
	limit.rlim_cur = 1UL << 60;
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	fail_call("mmap", 1, ENOMEM);
	assert_fails(create(ACTMEM_PLACE_BIND, &region), ENOMEM, "if RLIMIT_AS (1.0 EiB)");
	fail_call("mmap", 1, ENOMEM);
	assert_fails(open_memfd(&second, ACTMEM_PAGES_4K, 0), ENOMEM, "if RLIMIT_AS (1.0 EiB)");
	fail_call("mmap", 1, EAGAIN);
	assert_fails(create(ACTMEM_PLACE_BIND, &region), EAGAIN, "cannot map");
	assert_null(strstr(actmem_error(), "RLIMIT_AS"));
	fail_nothing();
	assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
}

#define MEMFD_TEST(test)	cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sweep),
		MEMFD_TEST(test_words),
		MEMFD_TEST(test_range_words),
		MEMFD_TEST(test_list),
		MEMFD_TEST(test_interrupted),
		MEMFD_TEST(test_misplaced),
		MEMFD_TEST(test_numa_calls_forbidden),
		MEMFD_TEST(test_unlocked),
		MEMFD_TEST(test_no_hugetlb),
		MEMFD_TEST(test_no_step_down),
		MEMFD_TEST(test_address_space),
		MEMFD_TEST(test_file_size_limit),
		MEMFD_TEST(test_address_space_limit),
	};

	return cmocka_run_group_tests_name("memfd", tests, NULL, NULL);
}
