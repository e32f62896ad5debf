// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Accounting: calls that fail are not charged, all processes of a user count together, and
 * the memory cgroup's limit binds everybody. limits.c tests what the limits of users refuse.
 */
#include "cgroup_test.h"

#define LIMIT	5

/* As a user without capabilities who may lock LIMIT pages. */
static int as_limited_user(uid_t user, int (*function)(int), int device)
{
	return set_memlock(LIMIT * PAGE_BYTES) ? -1 : as_user(user, function, device);
}

static int with_failures(int device)
{
	struct actmem_ioctl_create arg;
	int i;

	for (i = 0; i < 20; i++) {
		arg = region_of(1);
		arg.nodes[ACTMEM_NODE_WORDS - 1] = 1ULL << 63;
		CHECK(create(device, &arg) == -ENODEV);
		arg = region_of(1);
		CHECK(call(device, ACTMEM_IOC_CREATE, (void *)8) == -EFAULT);
	}
	CHECK(create_pages(device, LIMIT) >= 0);
	return 0;
}

TEST_F(driver, failures_cost_nothing)
{
	EXPECT_EQ(0, as_limited_user(USER, with_failures, self->device));
}

static int use_all(int device)
{
	CHECK(create_pages(device, LIMIT) >= 0);
	CHECK(create_pages(device, 1) == -ENOMEM);
	return 0;
}

static int too_much_for_the_machine(int device)
{
	struct actmem_ioctl_create arg = region_of(1UL << 22);

	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_NODE_FULL);
	return 0;
}

TEST_F(driver, a_failure_for_lack_of_memory_is_uncharged)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };

	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &unlimited));
	EXPECT_EQ(0, as_user(USER, too_much_for_the_machine, self->device));
	EXPECT_EQ(0, as_limited_user(USER, use_all, self->device));
}

static int second_process(int device)
{
	CHECK(create_pages(device, 2) == -ENOMEM);
	CHECK(create_pages(device, 1) >= 0);
	return 0;
}

static int first_process(int device)
{
	CHECK(create_pages(device, LIMIT - 1) >= 0);
	CHECK(as_user(USER, second_process, device) == 0);
	return 0;
}

TEST_F(driver, all_processes_of_a_user_count)
{
	EXPECT_EQ(0, as_limited_user(USER, first_process, self->device));
}

static int in_memory_cgroup(int device)
{
	struct actmem_ioctl_create arg;
	long before;
	int fd;

	CHECK(!enter_cgroup());
	before = cgroup_bytes();
	fd = must(create_pages(device, 8));
	CHECK(cgroup_pages_since(before) == 8);
	close(fd);

	CHECK(!put(CGROUP "/memory.max", "16M"));
	arg = region_of(12);
	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMCG && arg.why.node == -1);
	CHECK(arg.why.wanted == 12 * PAGE_BYTES);
	CHECK(arg.why.available < 8 * PAGE_BYTES);
	arg.policy = ACTMEM_POLICY_INTERLEAVE;
	CHECK(create(device, &arg) == -ENOMEM && arg.why.reason == ACTMEM_WHY_MEMCG);
	/* A length whose bookkeeping alone is more than the limit. */
	arg = region_of(1UL << 23);
	CHECK(create(device, &arg) == -ENOMEM && arg.why.reason == ACTMEM_WHY_NODE_FULL);
	CHECK(regions() == 0);
	CHECK(create_pages(device, 4) >= 0);
	return 0;
}

TEST_F(driver, the_memory_cgroup_is_charged)
{
	ASSERT_EQ(0, make_cgroup("+memory"));
	EXPECT_EQ(0, as_user(0, in_memory_cgroup, self->device));
	EXPECT_EQ(0, remove_cgroup());
}

#define REGIONS		250
#define LONG_PAGES	800

/* Bytes of kernel memory that lazy regions of so many pages take from CGROUP. */
static long bytes_of_regions(int device, size_t pages)
{
	long before = cgroup_bytes(), bytes;
	int fds[REGIONS], i;

	for (i = 0; i < REGIONS; i++)
		fds[i] = must(create_lazy(device, pages));
	bytes = cgroup_bytes() - before;
	for (i = 0; i < REGIONS; i++)
		close(fds[i]);
	return bytes;
}

static int create_long_regions(int device)
{
	long small, large;

	CHECK(!enter_cgroup());
	/* The first call also fills the kernel's caches. */
	bytes_of_regions(device, 1);
	small = bytes_of_regions(device, 1);
	large = bytes_of_regions(device, LONG_PAGES);
	/*
	 * A table would take eight bytes for each page. The kernel charges up to 64 small
	 * pages ahead on each processor.
	 */
	CHECK(large < small + REGIONS * LONG_PAGES * 4);
	return 0;
}

TEST_F(driver, a_length_without_pages_costs_nothing)
{
	ASSERT_EQ(0, make_cgroup("+memory"));
	EXPECT_EQ(0, as_user(0, create_long_regions, self->device));
	EXPECT_EQ(0, remove_cgroup());
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
