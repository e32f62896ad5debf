// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Accounting: RLIMIT_MEMLOCK holds for those without CAP_IPC_LOCK, for all
 * processes of a user together and against any race, and the memory cgroup's
 * limit holds for everybody.
 */
#include "cgroup_test.h"

#define LIMIT	5

/* As a user without capabilities who may lock LIMIT pages. */
static int as_limited_user(uid_t user, int (*function)(int), int device)
{
	return set_memlock(LIMIT * PAGE_BYTES) ? -1 : as_user(user, function, device);
}

static int up_to_the_limit(int device)
{
	struct actmem_ioctl_create arg;
	int first;

	arg = region_of(LIMIT + 1);
	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK && arg.why.node == -1);
	CHECK(arg.why.wanted == (LIMIT + 1) * PAGE_BYTES);
	CHECK(arg.why.available == LIMIT * PAGE_BYTES);
	CHECK(arg.fd == -1 && arg.id == 0);

	first = create_pages(device, 2);
	CHECK(first >= 0);
	arg = region_of(LIMIT - 1);
	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.available == (LIMIT - 2) * PAGE_BYTES);
	CHECK(create_pages(device, LIMIT - 2) >= 0);
	CHECK(create_pages(device, 1) == -ENOMEM);
	close(first);
	CHECK(create_pages(device, 2) >= 0);

	/* Now less than is in use. */
	CHECK(!set_memlock(PAGE_BYTES));
	arg = region_of(1);
	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK && arg.why.available == 0);
	return 0;
}

TEST_F(driver, the_limit_holds)
{
	EXPECT_EQ(0, as_limited_user(USER, up_to_the_limit, self->device));
	EXPECT_EQ(0, node_sum("region_bytes"));
	/* Nothing of it is left to the user. */
	EXPECT_EQ(0, as_limited_user(USER, up_to_the_limit, self->device));
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
	EXPECT_EQ(0, as_limited_user(USER, up_to_the_limit, self->device));
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

static int use_all(int device)
{
	CHECK(create_pages(device, LIMIT) >= 0);
	CHECK(create_pages(device, 1) == -ENOMEM);
	return 0;
}

static int hold_all(void *device)
{
	CHECK(!become(USER));
	return use_all(*(int *)device);
}

TEST_F(driver, each_user_has_a_limit_of_its_own)
{
	pid_t child;

	ASSERT_EQ(0, set_memlock(LIMIT * PAGE_BYTES));
	child = hold_in_child(hold_all, &self->device);
	ASSERT_LT(0, child);
	EXPECT_EQ(0, as_limited_user(OTHER_USER, use_all, self->device));
	EXPECT_EQ(1, regions());
	EXPECT_EQ(0, kill_child(child));
	EXPECT_EQ(0, regions());
}

TEST_F(driver, who_may_lock_memory_has_no_limit)
{
	int fd;

	ASSERT_EQ(0, set_memlock(0));
	fd = create_pages(self->device, LIMIT);
	EXPECT_LE(0, fd);
	close(fd);
}

static int in_memory_cgroup(int device)
{
	struct actmem_ioctl_create arg;
	long before;
	int fd;

	CHECK(!enter_cgroup());
	before = cgroup_bytes();
	fd = create_pages(device, 8);
	CHECK(fd >= 0);
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

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
