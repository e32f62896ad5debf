// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* What INFO and LIST tell, and what they leave alone. */
#include "driver_test.h"

TEST_F(driver, info_of_a_descriptor)
{
	struct actmem_ioctl_create arg = region_on(3, ACTMEM_POLICY_BIND, 1);
	struct actmem_ioctl_info now;

	snprintf(arg.name, sizeof(arg.name), "three");
	ASSERT_LE(0, create(self->device, &arg));
	ASSERT_EQ(0, info(arg.fd, 0, &now));
	EXPECT_EQ(sizeof(now), now.size);
	EXPECT_EQ(arg.id, now.id);
	EXPECT_EQ(3 * PAGE_BYTES, now.length);
	EXPECT_EQ(PAGE_BYTES, now.page_bytes);
	EXPECT_EQ(3 * PAGE_BYTES, now.allocated_bytes);
	EXPECT_EQ(0, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
	EXPECT_EQ(ACTMEM_POLICY_BIND, now.policy);
	EXPECT_EQ(0, now.state);
	EXPECT_EQ(1, now.nodes[0]);
	EXPECT_EQ(0, now.nodes[1]);
	EXPECT_EQ(0, now.uid);
	EXPECT_EQ(getpid(), now.pid);
	EXPECT_EQ(0, strcmp(now.name, "three"));

	EXPECT_EQ(-EINVAL, info(arg.fd, arg.id, &now));
	EXPECT_EQ(0, info(self->device, arg.id, &now));
	EXPECT_EQ(-ENOENT, info(self->device, 0, &now));
	EXPECT_EQ(-ENOENT, info(self->device, arg.id + 1, &now));
	EXPECT_EQ(-ENOENT, info(self->device, ~0ULL, &now));
	close(arg.fd);
	EXPECT_EQ(-ENOENT, info(self->device, arg.id, &now));
}

TEST_F(driver, info_writes_no_more_nodes_than_asked_for)
{
	struct actmem_ioctl_query query = query_arg();
	struct actmem_ioctl_info now = { .size = sizeof(now) };
	uint64_t bytes[ACTMEM_NODE_MAX + 1];
	int fd = must(create_pages(self->device, 2));
	uint64_t sum = 0;
	uint32_t i;

	ASSERT_EQ(0, call(self->device, ACTMEM_IOC_QUERY, &query));
	memset(bytes, 0xaa, sizeof(bytes));
	now.node_bytes = (uintptr_t)bytes;
	ASSERT_EQ(0, call(fd, ACTMEM_IOC_INFO, &now));
	EXPECT_EQ(query.node_count, now.node_count);
	EXPECT_EQ(0xaaaaaaaaaaaaaaaa, bytes[0]);

	now = (struct actmem_ioctl_info){ .size = sizeof(now) };
	now.node_bytes = (uintptr_t)bytes;
	now.node_count = query.node_count;
	ASSERT_EQ(0, call(fd, ACTMEM_IOC_INFO, &now));
	for (i = 0; i < query.node_count; i++)
		sum += bytes[i];
	EXPECT_EQ(2 * PAGE_BYTES, sum);
	EXPECT_EQ(0xaaaaaaaaaaaaaaaa, bytes[query.node_count]);

	now = (struct actmem_ioctl_info){ .size = sizeof(now) };
	now.node_bytes = (uintptr_t)bytes;
	now.node_count = ACTMEM_NODE_MAX;
	EXPECT_EQ(0, call(fd, ACTMEM_IOC_INFO, &now));
	EXPECT_EQ(query.node_count, now.node_count);

	now = (struct actmem_ioctl_info){ .size = sizeof(now) };
	now.node_bytes = 8;
	now.node_count = 1;
	EXPECT_EQ(-EFAULT, call(fd, ACTMEM_IOC_INFO, &now));

	/* No array, whatever the count. */
	now = (struct actmem_ioctl_info){ .size = sizeof(now), .node_count = UINT32_MAX };
	EXPECT_EQ(0, call(fd, ACTMEM_IOC_INFO, &now));
	close(fd);
}

TEST_F(driver, list_in_pieces)
{
	struct actmem_ioctl_create args[5];
	struct actmem_ioctl_list arg;
	uint64_t ids[8];
	size_t i;

	for (i = 0; i < 5; i++) {
		args[i] = region_of(1);
		ASSERT_LE(0, create(self->device, &args[i]));
	}
	EXPECT_EQ(5, regions());
	ASSERT_EQ(5, list(self->device, ids, 8));
	for (i = 0; i < 5; i++)
		EXPECT_EQ(args[i].id, ids[i]);
	EXPECT_EQ(5, list(self->device, ids, 5));
	EXPECT_EQ(5, list(self->device, ids, UINT32_MAX));

	arg = (struct actmem_ioctl_list){ .size = sizeof(arg) };
	arg.ids = (uintptr_t)ids;
	arg.count = 2;
	arg.after = args[1].id;
	ASSERT_EQ(0, call(self->device, ACTMEM_IOC_LIST, &arg));
	EXPECT_EQ(2, arg.count);
	EXPECT_EQ(args[2].id, ids[0]);
	EXPECT_EQ(args[3].id, ids[1]);
	arg.after = ids[1];
	ASSERT_EQ(0, call(self->device, ACTMEM_IOC_LIST, &arg));
	EXPECT_EQ(1, arg.count);
	EXPECT_EQ(args[4].id, ids[0]);
	arg.after = ids[0];
	arg.count = 2;
	ASSERT_EQ(0, call(self->device, ACTMEM_IOC_LIST, &arg));
	EXPECT_EQ(0, arg.count);
	arg.after = ~0ULL;
	arg.count = 2;
	ASSERT_EQ(0, call(self->device, ACTMEM_IOC_LIST, &arg));
	EXPECT_EQ(0, arg.count);

	EXPECT_EQ(-EINVAL, list(self->device, ids, 0));
	EXPECT_EQ(-EFAULT, list(self->device, NULL, 1));
	EXPECT_EQ(-EFAULT, list(self->device, (uint64_t *)-16L, 4));
	for (i = 0; i < 5; i++)
		close(args[i].fd);
	EXPECT_EQ(0, list(self->device, ids, 8));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
