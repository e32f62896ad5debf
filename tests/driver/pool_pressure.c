// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Warm pools where memory is short: of a node, under a floor, in a cgroup, and as it goes. */
#include <time.h>

#include "pool_test.h"

/* A little less than the driver waits. */
#define PAUSE	9

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

TEST_F(pool, a_target_beyond_what_is_free)
{
	size_t most = node_memory(NODE, "MemTotal") / PAGE_BYTES;
	struct actmem_ioctl_create arg = region_on(most, ACTMEM_POLICY_BIND, 1 << NODE);
	long before = -1, now = 0;

	ASSERT_EQ(0, set_pool(NODE, most));
	while (now != before || now < FULL) {
		before = now;
		usleep(500000);
		now = ready(NODE);
	}
	EXPECT_LT(now, (long)most);
	/* It leaves others something without their having to reclaim. */
	EXPECT_LT(PAGE_BYTES, unused_memory(NODE));
	/* What a node had to give includes its pool. */
	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_EQ(NODE, arg.why.node);
	EXPECT_EQ(most * PAGE_BYTES, arg.why.wanted);
	EXPECT_LE((size_t)now * PAGE_BYTES, arg.why.available);
	EXPECT_LT(arg.why.available, arg.why.wanted);
	/* Fails before it begins, but tells the same. */
	arg = region_on(2 * most, ACTMEM_POLICY_BIND, 1 << NODE);
	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_LE(most / 2 * PAGE_BYTES, arg.why.available);
	EXPECT_EQ(0, regions());
}

/*
 * Under pressure a pool is not filled for so many seconds. What fails after them
 * may have been asked too late, and is asked again: the machine may stand still.
 */
static int before_it_is_filled(int (*function)(int), int device)
{
	double begun;
	int result, tries = 10;

	do {
		begun = seconds();
		result = as_user(0, function, device);
	} while (result && seconds() - begun > PAUSE && --tries);
	return result;
}

static int shrink_to_the_floor(int device)
{
	int fd;

	CHECK(!set_pool(NODE, FULL));
	CHECK(!set(NODE, "pool_min_bytes", 8 * PAGE_BYTES));
	wait_ready(NODE, FULL);
	fd = create_on(device, NODE, SOME);
	CHECK(fd >= 0);
	CHECK(!put("/proc/sys/vm/drop_caches", "2"));
	CHECK(ready(NODE) == 8 - SOME && lent(NODE) == SOME);
	/* What comes back now is kept up to the floor. */
	CHECK(!set(NODE, "pool_min_bytes", 6 * PAGE_BYTES));
	close(fd);
	CHECK(lent(NODE) == 0);
	while (ready(NODE) < 6)
		usleep(20000);
	CHECK(ready(NODE) == 6);
	return 0;
}

TEST_F(pool, memory_pressure_shrinks_it_to_the_floor)
{
	EXPECT_EQ(0, before_it_is_filled(shrink_to_the_floor, self->device));
	EXPECT_EQ((long)(FULL * PAGE_BYTES), get(NODE, "pool_bytes"));
	/* After a while it is filled again. */
	wait_ready(NODE, FULL);
	ASSERT_EQ(0, set(NODE, "pool_min_bytes", 0));
	ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
	EXPECT_EQ(0, ready(NODE));
	/* An administrator who says so need not wait. */
	ASSERT_EQ(0, set_pool(NODE, SOME));
	wait_ready(NODE, SOME);
}

/* A process that wants more memory of the node than the pool leaves. */
static int use_most_of_the_node(int device)
{
	size_t length = unused_memory(NODE) + FULL / 2 * PAGE_BYTES;
	unsigned long mask = 1 << NODE;
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	/* MPOL_BIND */
	CHECK(!syscall(SYS_mbind, memory, length, 2, &mask, 64, 0));
	memset(memory, 1, length);
	/* There is no room for all of it as long as this process lives. */
	CHECK(ready(NODE) < 3 * FULL);
	return 0;
}

TEST_F(pool, others_get_its_memory_when_they_need_it)
{
	ASSERT_EQ(0, set_pool(NODE, 3 * FULL));
	wait_ready(NODE, 3 * FULL);
	EXPECT_EQ(0, as_user(0, use_most_of_the_node, self->device));
	wait_ready(NODE, 3 * FULL);
}

/* What a pool lends is not the cgroup's, what comes beyond it is. */
static int in_memory_cgroup(int device)
{
	struct actmem_ioctl_create arg;
	int fd, other;
	long before;

	CHECK(!put(CGROUP "/memory.max", "max"));
	CHECK(!enter_cgroup());
	CHECK(!set_pool(NODE, FULL) && !set(NODE, "pool_min_bytes", 0));
	wait_ready(NODE, FULL);
	before = cgroup_bytes();
	fd = create_on(device, NODE, SOME);
	CHECK(fd >= 0);
	CHECK(cgroup_pages_since(before) == 0);
	close(fd);
	wait_ready(NODE, FULL);

	/* What is beyond the pool is the cgroup's for good: the pool stays as large. */
	fd = create_on(device, NODE, FULL + 8);
	CHECK(fd >= 0);
	CHECK(lent(NODE) == FULL);
	CHECK(cgroup_pages_since(before) == 8);
	other = create_on(device, NODE, 8);
	CHECK(other >= 0);
	CHECK(cgroup_pages_since(before) == 16);
	close(fd);
	close(other);
	CHECK(cgroup_pages_since(before) == 0);
	CHECK(lent(NODE) == 0);
	wait_ready(NODE, FULL);

	/*
	 * Pressure, so that nothing is filled for a while. What was charged does
	 * not come back to the pool, though that has room up to its floor.
	 */
	CHECK(!put("/proc/sys/vm/drop_caches", "2"));
	CHECK(ready(NODE) == 0);
	CHECK(!set(NODE, "pool_min_bytes", FULL * PAGE_BYTES));
	before = cgroup_bytes();
	fd = create_on(device, NODE, 8);
	CHECK(fd >= 0);
	CHECK(cgroup_pages_since(before) == 8);
	close(fd);
	CHECK(cgroup_pages_since(before) == 0);
	CHECK(ready(NODE) == 0);

	/* What the cgroup has to pay for is what the pool did not give. */
	CHECK(!set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	CHECK(!set(NODE, "pool_min_bytes", 8 * PAGE_BYTES));
	CHECK(!put("/proc/sys/vm/drop_caches", "2"));
	CHECK(ready(NODE) == 8);
	CHECK(!put(CGROUP "/memory.max", "16M"));
	arg = region_on(8 + 12, ACTMEM_POLICY_BIND, 1 << NODE);
	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMCG && arg.why.node == -1);
	CHECK(arg.why.wanted == 12 * PAGE_BYTES);
	CHECK(arg.why.available < 8 * PAGE_BYTES);
	CHECK(lent(NODE) == 0);
	return 0;
}

TEST_F(pool, the_memory_cgroup_is_not_charged)
{
	ASSERT_EQ(0, make_cgroup("+memory"));
	EXPECT_EQ(0, before_it_is_filled(in_memory_cgroup, self->device));
	EXPECT_EQ(0, remove_cgroup());
}

/*
 * Takes one block of a node's memory away; its number, -1 if none can go. Not
 * the first, which has what the kernel itself keeps on the node.
 */
static int take_memory_away(int node)
{
	int block, seen = 0;
	char path[96];

	for (block = 0; block < 256; block++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/memory%d/state",
			 node, block);
		if (!access(path, W_OK) && seen++ && !put(path, "offline"))
			return block;
	}
	return -1;
}

TEST_F(pool, a_node_that_loses_memory)
{
	size_t most = node_memory(2, "MemTotal") / PAGE_BYTES, left;
	char path[96];
	int block;

	if (!most)
		SKIP(return, "this machine has no third memory node");
	/* Empties it again, for ten seconds, since its own pages cannot go. */
	ASSERT_EQ(0, set_pool(2, most));
	ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
	block = take_memory_away(2);
	left = node_memory(2, "MemTotal") / PAGE_BYTES;
	if (block < 0)
		SKIP(return, "none of its memory can be taken away");
	EXPECT_GT(most, left);
	EXPECT_EQ((long)(left * PAGE_BYTES), get(2, "pool_bytes"));
	EXPECT_EQ(-ERANGE, set_pool(2, most));
	ASSERT_EQ(0, set_pool(2, FULL));
	wait_ready(2, FULL);
	snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%d/state", block);
	EXPECT_EQ(0, put(path, "online_kernel"));
	EXPECT_EQ(0, set_pool(2, most));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
