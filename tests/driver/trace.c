// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The tracepoints: which events there are, in which order, with all of their
 * fields to the letter but times and addresses.
 */
#include "cgroup_test.h"
#include "trace_test.h"

#define NODE		1
#define PAGES		4

FIXTURE(trace)
{
	int device;
};

FIXTURE_SETUP(trace)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
	ASSERT_TRUE(!mkdir(INSTANCE, 0755) || errno == EEXIST);
	ASSERT_EQ(0, clear_trace());
	ASSERT_EQ(0, put(EVENTS "/enable", "1"));
}

FIXTURE_TEARDOWN(trace)
{
	close(self->device);
	put(EVENTS "/enable", "0");
	EXPECT_EQ(0, rmdir(INSTANCE));
}

TEST_F(trace, a_page_is_allocated_when_it_is_touched)
{
	struct actmem_ioctl_create arg = region_on(PAGES, ACTMEM_POLICY_BIND, 1 << NODE);
	char *memory;
	int i, fd;

	arg.flags = LAZY;
	fd = must(create(self->device, &arg));
	memory = mapped(map(fd, PAGES));
	for (i = PAGES - 1; i >= 0; i--) {
		memory[i * PAGE_BYTES] = 1;
		memory[i * PAGE_BYTES + 4096] = 1;
	}
	read_events();
	EXPECT_EQ(PAGES, count("fault"));
	for (i = PAGES - 1; i >= 0; i--)
		EXPECT_EVENT("fault", "id=%llu offset=%zu node=%d ret=0 latency_ns=N", arg.id,
			     i * PAGE_BYTES, NODE);
	munmap(memory, PAGES * PAGE_BYTES);
	close(fd);
}

/* The event says what the call says. */
#define EXPECT_FAILURE(error, reason_name, why)						\
	EXPECT_EVENT("alloc_fail",							\
		     "id=0 ret=%d reason=%s node=%d wanted=%llu available=%llu movable=%llu",	\
		     -(error), reason_name, (why).node, (why).wanted, (why).available,	\
		     (why).movable)

TEST_F(trace, nodes_that_cannot_give)
{
	struct actmem_ioctl_create arg = region_on(1, ACTMEM_POLICY_BIND, 1 << NODE);

	arg.length = 1ULL << 40;
	ASSERT_EQ(-ENOMEM, create(self->device, &arg));
	read_events();
	EXPECT_EQ(1ULL << 40, arg.why.wanted);
	EXPECT_EQ(NODE, arg.why.node);
	EXPECT_FAILURE(ENOMEM, "node-full", arg.why);
	EXPECT_EQ(1, event_count);

	ASSERT_EQ(0, clear_trace());
	arg.nodes[0] = 1ULL << 63;
	ASSERT_EQ(-ENODEV, create(self->device, &arg));
	read_events();
	EXPECT_EQ(63, arg.why.node);
	EXPECT_FAILURE(ENODEV, "no-memory-node", arg.why);
	EXPECT_EQ(1, event_count);

	/* A call that is not even a request is no failure of memory. */
	ASSERT_EQ(0, clear_trace());
	arg.length++;
	ASSERT_EQ(-EINVAL, create(self->device, &arg));
	strcpy(arg.name, "\n");
	ASSERT_EQ(-EINVAL, create(self->device, &arg));
	read_events();
	EXPECT_EQ(0, event_count);
}

static int with_little_locked_memory(int device)
{
	struct actmem_ioctl_create arg = region_of(PAGES);

	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK);
	CHECK(arg.why.wanted == PAGES * PAGE_BYTES && arg.why.available == PAGE_BYTES);
	return 0;
}

TEST_F(trace, a_user_may_not_lock_more)
{
	ASSERT_EQ(0, set_memlock(PAGE_BYTES));
	ASSERT_EQ(0, as_user(USER, with_little_locked_memory, self->device));
	read_events();
	EXPECT_STREQ(text("ret=%d reason=memlock node=-1 wanted=%zu available=%zu movable=0",
			  -ENOMEM, PAGES * PAGE_BYTES, PAGE_BYTES),
		     strchr(find("alloc_fail")->fields, ' ') + 1);
	EXPECT_EQ(1, count("alloc_fail"));
}

static int in_cgroup(int device)
{
	struct actmem_ioctl_create arg = region_on(12, ACTMEM_POLICY_BIND, 1 << NODE);

	CHECK(!enter_cgroup());
	CHECK(create(device, &arg) == -EPERM);
	read_events();
	CHECK(!strcmp(find("alloc_fail")->fields,
		      text("id=0 ret=%d reason=cpuset node=%d wanted=0 available=0 movable=0",
			   -EPERM, NODE)));
	CHECK(!clear_trace());
	arg.nodes[0] = 1;
	CHECK(create(device, &arg) == -ENOMEM && arg.why.reason == ACTMEM_WHY_MEMCG);
	read_events();
	CHECK(strstr(find("alloc_fail")->fields, text("reason=memcg node=-1 wanted=%llu available=%llu movable=0",
						      arg.why.wanted, arg.why.available)));
	return 0;
}

TEST_F(trace, control_groups_refuse)
{
	ASSERT_EQ(0, make_cgroup("+memory +cpuset"));
	ASSERT_EQ(0, put(CGROUP "/cpuset.mems", "0"));
	ASSERT_EQ(0, put(CGROUP "/memory.max", "16M"));
	EXPECT_EQ(0, as_user(0, in_cgroup, self->device));
	EXPECT_EQ(0, remove_cgroup());
}

static int over_a_limit(int device)
{
	struct actmem_ioctl_create arg = region_of(PAGES);

	CHECK(create(device, &arg) == -EDQUOT && arg.why.reason == ACTMEM_WHY_USER_LIMIT);
	return 0;
}

TEST_F(trace, limits_refuse)
{
	struct actmem_ioctl_create arg = region_on(PAGES, ACTMEM_POLICY_BIND, 1 << NODE);

	ASSERT_EQ(0, put(SYSFS "/user_limit_bytes", text("%zu", PAGE_BYTES)));
	EXPECT_EQ(0, as_user(USER, over_a_limit, self->device));
	ASSERT_EQ(0, put(SYSFS "/user_limit_bytes", "max"));
	read_events();
	EXPECT_STREQ(text("ret=%d reason=user-limit node=-1 wanted=%zu available=%zu movable=0",
			  -EDQUOT, PAGES * PAGE_BYTES, PAGE_BYTES),
		     strchr(find("alloc_fail")->fields, ' ') + 1);

	ASSERT_EQ(0, put(SYSFS "/node1/limit_bytes", text("%zu", PAGE_BYTES)));
	ASSERT_EQ(0, clear_trace());
	EXPECT_EQ(-EDQUOT, create(self->device, &arg));
	ASSERT_EQ(0, put(SYSFS "/node1/limit_bytes", "max"));
	read_events();
	EXPECT_STREQ(text("ret=%d reason=node-limit node=%d wanted=%llu available=%llu movable=0",
			  -EDQUOT, NODE, arg.why.wanted, arg.why.available),
		     strchr(find("alloc_fail")->fields, ' ') + 1);
}

TEST_F(trace, what_is_not_wanted_is_not_traced)
{
	char *memory;
	int fd;

	ASSERT_EQ(0, put(EVENTS "/enable", "0"));
	fd = create_lazy(self->device, PAGES);
	memory = mapped(map_and_touch(fd, PAGES));
	munmap(memory, PAGES * PAGE_BYTES);
	close(fd);
	read_events();
	EXPECT_EQ(0, event_count);

	ASSERT_EQ(0, set_event("fault", "1"));
	fd = create_lazy(self->device, PAGES);
	memory = mapped(map_and_touch(fd, PAGES));
	/* Pages that are there when they are touched are nobody's news. */
	memory[0] = 2;
	munmap(memory, PAGES * PAGE_BYTES);
	close(fd);
	read_events();
	EXPECT_EQ(PAGES, event_count);
	EXPECT_EQ(PAGES, count("fault"));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
