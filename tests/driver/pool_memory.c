// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Warm pools and other memory: page cache that comes and goes, a cgroup, a node that shrinks. */
#include "pool_test.h"

#define DISK_ENV	"ACTMEM_TEST_DISK"

/*
 * What a pool lends is not the cgroup's, what comes beyond it is. It comes first, as page
 * cache leaves the strict kernel's memory in pieces.
 */
static int in_memory_cgroup(int device)
{
	struct actmem_ioctl_create arg;
	int fd, other;
	long before;

	CHECK(!put(CGROUP "/memory.max", "max"));
	CHECK(!enter_cgroup());
	fill_pool(NODE, FULL);
	before = cgroup_bytes();
	fd = must(create_on(device, NODE, SOME));
	CHECK(cgroup_pages_since(before) == 0);
	close(fd);
	wait_ready(NODE, FULL);

	/* The cgroup pays for pages beyond the pool for good: the pool stays as large. */
	fd = must(create_on(device, NODE, FULL + 8));
	CHECK(lent(NODE) == FULL);
	CHECK(cgroup_pages_since(before) == 8);
	other = must(create_on(device, NODE, 8));
	CHECK(cgroup_pages_since(before) == 16);
	close(fd);
	close(other);
	CHECK(cgroup_pages_since(before) == 0);
	CHECK(lent(NODE) == 0);
	wait_ready(NODE, FULL);

	/* What the cgroup has to pay for is what the pool did not give. */
	CHECK(!set_pool(NODE, 8));
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
	EXPECT_EQ(0, as_user(0, in_memory_cgroup, self->device));
	EXPECT_EQ(0, remove_cgroup());
}

/* All of the disk through page cache of the node, as a data loader does it. */
static int read_disk_on_the_node(int unused)
{
	static char buffer[1 << 20];
	unsigned long mask = 1 << NODE;
	ssize_t length;
	int fd;

	/* MPOL_BIND */
	CHECK(!syscall(SYS_set_mempolicy, 2, &mask, 64));
	fd = open(getenv(DISK_ENV), O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	do {
		length = read(fd, buffer, sizeof(buffer));
	} while (length > 0);
	close(fd);
	return length ? -1 : 0;
}

static size_t pages_of_node(int node)
{
	return node_memory(node, "MemTotal") / PAGE_BYTES;
}

TEST_F(pool, page_cache_leaves_it_alone)
{
	const size_t all = pages_of_node(NODE);
	long most;
	int fd;

	ASSERT_NE(NULL, getenv(DISK_ENV));
	/* The disk is several times what is left, be it that memory is in pieces. */
	ASSERT_EQ(0, set_pool(NODE, all / 2));
	most = get(NODE, "pool_bytes") / (long)PAGE_BYTES;
	EXPECT_LT((long)all / 3, most);
	wait_ready(NODE, most);
	fd = must(create_on(self->device, NODE, SOME));
	ASSERT_EQ(0, as_user(0, read_disk_on_the_node, 0));
	ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "3"));
	EXPECT_EQ(most - SOME, ready(NODE));
	EXPECT_EQ(SOME, lent(NODE));
	/* What was lent meanwhile comes back to it. */
	close(fd);
	wait_ready(NODE, most);
}

/* By what the strict kernel notes of each page and object, which compaction cannot move. */
static bool memory_is_in_pieces(void)
{
	return !access("/proc/self/fail-nth", F_OK);
}

TEST_F(pool, page_cache_makes_room_for_it)
{
	const size_t all = pages_of_node(NODE);
	int disk, region;
	long most;

	ASSERT_NE(NULL, getenv(DISK_ENV));
	/* Its pages stay in the cache as long as anybody has it open. */
	disk = open(getenv(DISK_ENV), O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, disk);
	ASSERT_EQ(0, as_user(0, read_disk_on_the_node, 0));
	EXPECT_GT(all / 3 * PAGE_BYTES, unused_memory(NODE));
	if (!memory_is_in_pieces()) {
		region = create_on(self->device, NODE, all / 2);
		EXPECT_LE(0, region);
		close(region);
		ASSERT_EQ(0, as_user(0, read_disk_on_the_node, 0));
	}
	ASSERT_EQ(0, set_pool(NODE, all / 4 * 3));
	most = get(NODE, "pool_bytes") / (long)PAGE_BYTES;
	if (!memory_is_in_pieces())
		EXPECT_LT((long)all / 2, most);
	wait_ready(NODE, most);
	close(disk);
}

/* It becomes as large as can be, and says how large that is. */
TEST_F(pool, a_target_beyond_what_there_is)
{
	size_t most = pages_of_node(NODE), got;
	struct actmem_ioctl_create arg = region_on(most, ACTMEM_POLICY_BIND, 1 << NODE);

	ASSERT_EQ(0, set_pool(NODE, most));
	got = get(NODE, "pool_bytes") / PAGE_BYTES;
	EXPECT_LT(got, most);
	if (!memory_is_in_pieces())
		EXPECT_LT(most / 2, got);
	wait_ready(NODE, got);
	/* What a node had to give includes its pool. */
	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_EQ(NODE, arg.why.node);
	EXPECT_EQ(most * PAGE_BYTES, arg.why.wanted);
	EXPECT_LE(got * PAGE_BYTES, arg.why.available);
	EXPECT_LT(arg.why.available, arg.why.wanted);
	/* Fails before it begins, but tells the same. */
	arg = region_on(2 * most, ACTMEM_POLICY_BIND, 1 << NODE);
	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_LE(got * PAGE_BYTES, arg.why.available);
	EXPECT_EQ(0, regions());
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
	size_t most = pages_of_node(2), left;
	char path[96];
	int block;

	if (!most)
		SKIP(return, "this machine has no third memory node");
	block = take_memory_away(2);
	left = pages_of_node(2);
	if (block < 0)
		SKIP(return, "none of its memory can be taken away");
	EXPECT_GT(most, left);
	EXPECT_EQ(-ERANGE, set_pool(2, most));
	fill_pool(2, FULL);
	snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%d/state", block);
	EXPECT_EQ(0, put(path, "online_kernel"));
	EXPECT_EQ(0, set_pool(2, most));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
