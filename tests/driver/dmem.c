// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Limits by cgroup, of the kernel's dmem controller: they hold for what a pool lends, too,
 * each page counts for the cgroup that has had it made, and nothing is left of it.
 */
#include "dmem_test.h"

TEST_F(dmem, the_driver_says_that_there_are_such_limits)
{
	struct actmem_ioctl_query arg = query_arg();

	ASSERT_EQ(0, call(self->device, ACTMEM_IOC_QUERY, &arg));
	EXPECT_NE(0, arg.features & ACTMEM_FEATURE_DMEM);
}

static int up_to_the_limit(int device)
{
	struct actmem_ioctl_create arg = region_on(3 * LIMIT, ACTMEM_POLICY_BIND, 1 << NODE);
	int fd;

	CHECK(!enter(JOB));
	CHECK(!set_most(JOB, NODE, LIMIT));
	CHECK(create(device, &arg) == -EDQUOT);
	CHECK(arg.why.reason == ACTMEM_WHY_DMEM && arg.why.node == NODE);
	CHECK(arg.why.wanted == 3 * LIMIT * PAGE_BYTES);
	CHECK(arg.why.available == LIMIT * PAGE_BYTES);
	CHECK(charged(JOB, NODE) == 0 && lent(NODE) == 0);
	fd = create_on(device, NODE, LIMIT);
	CHECK(fd >= 0 && charged(JOB, NODE) == LIMIT && lent(NODE) == LIMIT);
	CHECK(create_on(device, NODE, 1) == -EDQUOT);
	/* What is given back can be had again. */
	CHECK(!discard(fd, 0, LIMIT / 2) && charged(JOB, NODE) == LIMIT / 2);
	CHECK(!populate(fd, 0, LIMIT) && charged(JOB, NODE) == LIMIT);
	close(fd);
	CHECK(charged(JOB, NODE) == 0);
	CHECK(!set_most(JOB, NODE, 3 * LIMIT));
	CHECK(create_on(device, NODE, 3 * LIMIT) >= 0);
	CHECK(charged(JOB, NODE) == 3 * LIMIT && charged(CGROUP, NODE) == 3 * LIMIT);
	/* What the pool does not have counts as well. */
	CHECK(!set_most(JOB, NODE, FULL + LIMIT));
	fd = create_on(device, NODE, FULL - 2 * LIMIT);
	if (fd < 0)
		printf("# %d pages, of which the pool has fewer: %s\n", FULL - 2 * LIMIT,
		       strerror(-fd));
	CHECK(fd >= 0);
	CHECK(lent(NODE) == FULL && charged(JOB, NODE) == FULL + LIMIT);
	return 0;
}

TEST_F(dmem, a_limit_holds_for_a_pool)
{
	EXPECT_EQ(0, as_user(0, up_to_the_limit, self->device));
}

static int above_the_limit(int device)
{
	CHECK(!set_most(CGROUP, NODE, LIMIT));
	CHECK(!enter(JOB));
	CHECK(create_on(device, NODE, LIMIT) >= 0);
	CHECK(!enter(OTHER));
	CHECK(create_on(device, NODE, 1) == -EDQUOT);
	CHECK(charged(OTHER, NODE) == 0);
	return 0;
}

TEST_F(dmem, a_limit_holds_for_cgroups_below)
{
	EXPECT_EQ(0, as_user(0, above_the_limit, self->device));
	EXPECT_EQ(0, set_most(CGROUP, NODE, -1));
}

static int other_nodes(int device)
{
	struct actmem_ioctl_create arg = region_on(4 * LIMIT, ACTMEM_POLICY_PREFERRED, 1 << NODE);
	int fd;

	CHECK(!enter(JOB));
	CHECK(!set_most(JOB, NODE, LIMIT));
	fd = must(create(device, &arg));
	CHECK(charged(JOB, NODE) == LIMIT);
	close(fd);
	arg.policy = ACTMEM_POLICY_INTERLEAVE;
	arg.nodes[0] = 3;
	CHECK(create(device, &arg) == -EDQUOT);
	CHECK(arg.why.reason == ACTMEM_WHY_DMEM && arg.why.node == NODE);
	CHECK(arg.why.wanted == 2 * LIMIT * PAGE_BYTES && arg.why.available == LIMIT * PAGE_BYTES);
	CHECK(charged(JOB, 0) == 0 && charged(JOB, NODE) == 0);
	return 0;
}

TEST_F(dmem, each_node_has_a_limit_of_its_own)
{
	EXPECT_EQ(0, as_user(0, other_nodes, self->device));
}

static int touch_too_much(int device)
{
	struct actmem_ioctl_create arg = region_on(2 * LIMIT, ACTMEM_POLICY_BIND, 1 << NODE);
	int fd;

	CHECK(!enter(JOB));
	CHECK(!set_most(JOB, NODE, LIMIT));
	arg.flags = LAZY;
	fd = create(device, &arg);
	CHECK(fd >= 0 && charged(JOB, NODE) == 0);
	CHECK(touch_to_death(fd, 2 * LIMIT) == SIGBUS);
	CHECK(charged(JOB, NODE) == LIMIT && pages_held(fd) == LIMIT);
	return 0;
}

TEST_F(dmem, a_touch_beyond_the_limit)
{
	EXPECT_EQ(0, as_user(0, touch_too_much, self->device));
}

static int hold_some(void *device)
{
	CHECK(!enter(JOB));
	CHECK(create_on(*(int *)device, NODE, LIMIT) >= 0);
	return 0;
}

TEST_F(dmem, a_process_that_is_killed)
{
	pid_t child = hold_in_child(hold_some, &self->device);

	ASSERT_LT(0, child);
	EXPECT_EQ(LIMIT, charged(JOB, NODE));
	EXPECT_EQ(0, kill_child(child));
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, charged(JOB, NODE));
}

/* What is charged stays where it is, and what comes after the move does not. */
static int move(int device)
{
	int fd;

	CHECK(!enter(JOB));
	fd = must(create_on(device, NODE, 2 * LIMIT));
	CHECK(!discard(fd, 0, LIMIT));
	CHECK(!enter(OTHER));
	CHECK(charged(JOB, NODE) == LIMIT);
	CHECK(!populate(fd, 0, 2 * LIMIT));
	CHECK(charged(JOB, NODE) == LIMIT && charged(OTHER, NODE) == LIMIT);
	CHECK(!discard(fd, 0, LIMIT));
	CHECK(charged(JOB, NODE) == LIMIT && charged(OTHER, NODE) == 0);
	close(fd);
	CHECK(charged(JOB, NODE) == 0);
	return 0;
}

TEST_F(dmem, a_process_that_is_moved)
{
	EXPECT_EQ(0, as_user(0, move, self->device));
}

/* Those above it still count what is held. */
static int outlive(int device)
{
	int fd;

	CHECK(!enter(JOB));
	fd = must(create_on(device, NODE, LIMIT));
	CHECK(!enter(OTHER));
	CHECK(!leave(JOB));
	CHECK(charged(CGROUP, NODE) == LIMIT && charged(OTHER, NODE) == 0);
	close(fd);
	CHECK(charged(CGROUP, NODE) == 0);
	CHECK(!mkdir(JOB, 0755));
	return 0;
}

TEST_F(dmem, a_cgroup_that_is_removed)
{
	EXPECT_EQ(0, as_user(0, outlive, self->device));
}

static int linger(int device)
{
	int fd, ends[2];
	char *memory;

	CHECK(!enter(JOB));
	fd = must(create_on(device, NODE, LIMIT));
	memory = map_and_touch(fd, LIMIT);
	CHECK(memory != MAP_FAILED && !hold(memory, ends));
	munmap(memory, LIMIT * PAGE_BYTES);
	close(fd);
	CHECK(lingering_regions() == 1 && charged(JOB, NODE) == 1);
	let_go(ends);
	CHECK(lingering_regions() == 0 && charged(JOB, NODE) == 0);
	return 0;
}

TEST_F(dmem, a_pin_that_lasts)
{
	EXPECT_EQ(0, as_user(0, linger, self->device));
}

/* Several at once come to the limit, and never beyond it. */
static int race(int device)
{
	int i, fd;

	CHECK(!enter(JOB));
	for (i = 0; i < 200; i++) {
		fd = create_on(device, NODE, LIMIT / 2 + i % 2);
		CHECK(fd >= 0 || fd == -EDQUOT);
		CHECK(charged(JOB, NODE) <= LIMIT);
		close(fd);
	}
	return 0;
}

TEST_F(dmem, a_race_for_the_limit)
{
	pid_t children[4];
	int i;

	ASSERT_EQ(0, set_most(JOB, NODE, LIMIT));
	for (i = 0; i < 4; i++)
		children[i] = start_child(0, race, self->device);
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, wait_for(children[i]));
}

/* It goes, and comes back, while the kernel may still know of a cgroup that was charged. */
TEST_F(dmem, a_new_module_begins_anew)
{
	EXPECT_EQ(0, as_user(0, move, self->device));
	EXPECT_EQ(0, set_pool(NODE, 0));
	close(self->device);
	ASSERT_EQ(0, unload_module("actmem"));
	EXPECT_EQ(-1, charged(JOB, NODE));
	EXPECT_EQ(-EINVAL, set_most(JOB, NODE, LIMIT));
	ASSERT_EQ(0, load_module(MODULE));
	self->device = open_device();
	/* The kernel has to find huge pages in a node that the tests before this one fragmented. */
	EXPECT_EQ(0, put("/proc/sys/vm/drop_caches", "3"));
	EXPECT_EQ(0, put("/proc/sys/vm/compact_memory", "1"));
	EXPECT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	EXPECT_EQ(0, as_user(0, up_to_the_limit, self->device));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
