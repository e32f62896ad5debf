// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The administrator's limits of nodes: what they refuse, by each policy. Wants a
 * machine with two nodes or more.
 */
#include "pool_test.h"

FIXTURE(node_limits)
{
	int device;
};

FIXTURE_SETUP(node_limits)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
	if (!node_memory(1, "MemTotal"))
		SKIP(return, "this machine has one memory node only");
}

FIXTURE_TEARDOWN(node_limits)
{
	EXPECT_EQ(0, set_node_limit(0, -1));
	EXPECT_EQ(0, set_node_limit(1, -1));
	EXPECT_EQ(0, regions());
	close(self->device);
}

static bool is_node_limit(const struct actmem_ioctl_create *arg, int node, size_t wanted,
			  size_t available)
{
	const struct actmem_why *why = &arg->why;

	return why->reason == ACTMEM_WHY_NODE_LIMIT && why->node == node &&
	       why->wanted == wanted * PAGE_BYTES && why->available == available * PAGE_BYTES &&
	       arg->fd == -1;
}

static long node_pages(int node)
{
	return number_in(SYSFS "/node%d/region_bytes", node) / (long)PAGE_BYTES;
}

TEST_F(node_limits, of_one)
{
	struct actmem_ioctl_create arg = region_on(4, ACTMEM_POLICY_BIND, 1);
	int first, second;

	/* Also for root, and of all users together. */
	ASSERT_EQ(0, set_node_limit(0, 3));
	EXPECT_EQ(-EDQUOT, create(self->device, &arg));
	EXPECT_TRUE(is_node_limit(&arg, 0, 4, 3));
	arg = region_on(2, ACTMEM_POLICY_BIND, 1);
	first = must(create(self->device, &arg));
	EXPECT_EQ(-EDQUOT, create(self->device, &arg));
	EXPECT_TRUE(is_node_limit(&arg, 0, 2, 1));

	/* The next node, where another may be taken. */
	arg = region_on(3, ACTMEM_POLICY_PREFERRED, 1);
	second = must(create(self->device, &arg));
	EXPECT_EQ(3, node_pages(0));
	EXPECT_EQ(5 * (long)PAGE_BYTES, node_sum("region_bytes"));
	close(second);
	arg = region_on(3, ACTMEM_POLICY_BIND, 3);
	second = must(create(self->device, &arg));
	close(second);

	arg = region_on(4, ACTMEM_POLICY_INTERLEAVE, 3);
	EXPECT_EQ(-EDQUOT, create(self->device, &arg));
	EXPECT_TRUE(is_node_limit(&arg, 0, 2, 1));
	arg = region_on(2, ACTMEM_POLICY_INTERLEAVE, 3);
	second = must(create(self->device, &arg));
	EXPECT_EQ(3, node_pages(0));
	EXPECT_EQ(1, node_pages(1));
	close(second);
	close(first);
}

TEST_F(node_limits, of_all)
{
	struct actmem_ioctl_create arg;
	int node, last, fd;

	for (last = 0; node_memory(last, "MemTotal"); last++)
		ASSERT_EQ(0, set_node_limit(last, 2));
	arg = region_on(2 * last + 1, ACTMEM_POLICY_PREFERRED, 1);
	EXPECT_EQ(-EDQUOT, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_LIMIT, arg.why.reason);
	EXPECT_EQ(3 * PAGE_BYTES, arg.why.wanted);
	EXPECT_EQ(2 * PAGE_BYTES, arg.why.available);
	arg = region_on(2 * last, ACTMEM_POLICY_PREFERRED, 1);
	fd = must(create(self->device, &arg));
	for (node = 0; node < last; node++)
		EXPECT_EQ(2, node_pages(node));
	EXPECT_EQ(-EDQUOT, create_pages(self->device, 1));
	close(fd);
	for (node = 0; node < last; node++)
		EXPECT_EQ(0, set_node_limit(node, -1));
}

/* Of an interleaved region, each page's node is settled, whatever else is there. */
TEST_F(node_limits, page_by_page)
{
	struct actmem_ioctl_create arg = region_on(6, ACTMEM_POLICY_INTERLEAVE, 3);
	struct actmem_ioctl_range there;
	int fd;

	arg.flags = LAZY;
	ASSERT_EQ(0, set_node_limit(0, 1));
	fd = must(create(self->device, &arg));
	EXPECT_EQ(0, change_range(fd, ACTMEM_IOC_POPULATE, 1, 1, &there));
	EXPECT_EQ(0, change_range(fd, ACTMEM_IOC_POPULATE, 2, 2, &there));
	EXPECT_EQ(-EDQUOT, change_range(fd, ACTMEM_IOC_POPULATE, 0, 1, &there));
	EXPECT_EQ(ACTMEM_WHY_NODE_LIMIT, there.why.reason);
	EXPECT_EQ(0, there.why.node);
	EXPECT_EQ(0, there.done);
	EXPECT_EQ(-EDQUOT, change_range(fd, ACTMEM_IOC_POPULATE, 1, 5, &there));
	EXPECT_EQ(3 * PAGE_BYTES, there.done);
	EXPECT_EQ(SIGBUS, touch_to_death(fd, 1));
	EXPECT_EQ(0, change_range(fd, ACTMEM_IOC_POPULATE, 5, 1, &there));
	EXPECT_EQ(0, change_range(fd, ACTMEM_IOC_DISCARD, 2, 1, &there));
	EXPECT_EQ(0, change_range(fd, ACTMEM_IOC_POPULATE, 0, 2, &there));
	EXPECT_EQ(1, node_pages(0));
	EXPECT_EQ(3, node_pages(1));
	close(fd);
}

/* What a node has not got does not count against its limit. */
TEST_F(node_limits, of_a_node_that_has_been_full)
{
	struct actmem_ioctl_create arg = region_on(node_memory(0, "MemTotal") / PAGE_BYTES,
						   ACTMEM_POLICY_BIND, 1);

	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	ASSERT_EQ(0, set_node_limit(0, 3));
	arg = region_on(3, ACTMEM_POLICY_BIND, 1);
	ASSERT_LE(0, create(self->device, &arg));
	close(arg.fd);
}

/* What cannot fit takes no page, not even for a moment. */
TEST_F(node_limits, refuse_before_anything_is_allocated)
{
	struct actmem_ioctl_create arg = region_on(4, ACTMEM_POLICY_BIND, 1);

	fill_pool(0, 4);
	ASSERT_EQ(0, set_node_limit(0, 3));
	EXPECT_EQ(-EDQUOT, create(self->device, &arg));
	EXPECT_EQ(4, ready(0));
	arg.policy = ACTMEM_POLICY_INTERLEAVE;
	EXPECT_EQ(-EDQUOT, create(self->device, &arg));
	EXPECT_EQ(4, ready(0));
	/* What a pool has ready is not held by anybody. */
	ASSERT_EQ(0, set_node_limit(0, 4));
	arg.policy = ACTMEM_POLICY_BIND;
	ASSERT_LE(0, create(self->device, &arg));
	close(arg.fd);
	EXPECT_EQ(0, set_pool(0, 0));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
