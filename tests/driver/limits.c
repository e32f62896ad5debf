// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * RLIMIT_MEMLOCK and the administrator's limit of each user. The tests show that each limit
 * holds exactly, which users it binds, and that the second limit replaces the first one.
 */
#include "driver_test.h"

#define LIMIT		5
#define USER_FILE	SYSFS "/user_limit_bytes"
#define NODE_FILE	SYSFS "/node0/limit_bytes"

FIXTURE(limits)
{
	int device;
};

FIXTURE_SETUP(limits)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
}

FIXTURE_TEARDOWN(limits)
{
	EXPECT_EQ(0, set_limit(USER_FILE, -1));
	EXPECT_EQ(0, set_limit(NODE_FILE, -1));
	EXPECT_EQ(0, regions());
	close(self->device);
}

static bool is_user_limit(const struct actmem_why *why, size_t wanted, size_t available)
{
	return why->reason == ACTMEM_WHY_USER_LIMIT && why->node == -1 &&
	       why->wanted == wanted * PAGE_BYTES && why->available == available * PAGE_BYTES &&
	       why->movable == 0;
}

static int nothing_at_all(int device)
{
	struct actmem_ioctl_create arg = region_of(1);

	CHECK(create(device, &arg) == -EDQUOT && is_user_limit(&arg.why, 1, 0));
	return 0;
}

TEST_F(limits, of_nothing)
{
	ASSERT_EQ(0, set_limit(USER_FILE, 0));
	EXPECT_EQ(0, as_user(USER, nothing_at_all, self->device));
}

/* Tests of both limits of a user. */
FIXTURE(user_limit)
{
	int device;
};

FIXTURE_VARIANT(user_limit)
{
	uint32_t reason;
	int error;
};

FIXTURE_VARIANT_ADD(user_limit, memlock)
{
	.reason = ACTMEM_WHY_MEMLOCK,
	.error = -ENOMEM,
};

FIXTURE_VARIANT_ADD(user_limit, of_the_administrator)
{
	.reason = ACTMEM_WHY_USER_LIMIT,
	.error = -EDQUOT,
};

/* Those of the variant, for the functions that children run. */
static uint32_t reason;
static int error;

static int limit_users(size_t pages)
{
	if (reason == ACTMEM_WHY_MEMLOCK)
		return set_memlock(pages * PAGE_BYTES);
	/* RLIMIT_MEMLOCK does not count then. */
	return set_memlock(0) ?: set_limit(USER_FILE, pages);
}

FIXTURE_SETUP(user_limit)
{
	reason = variant->reason;
	error = variant->error;
	self->device = open_device();
	ASSERT_EQ(0, regions());
	ASSERT_EQ(0, limit_users(LIMIT));
}

FIXTURE_TEARDOWN(user_limit)
{
	EXPECT_EQ(0, set_limit(USER_FILE, -1));
	EXPECT_EQ(0, regions());
	close(self->device);
}

/* Returns true if a region of @wanted pages is refused, because @available are left. */
static bool is_refused(int device, size_t wanted, size_t available)
{
	struct actmem_ioctl_create arg = region_of(wanted);

	return create(device, &arg) == error && arg.fd == -1 && arg.id == 0 &&
	       arg.why.reason == reason && arg.why.node == -1 && arg.why.movable == 0 &&
	       arg.why.wanted == wanted * PAGE_BYTES &&
	       arg.why.available == available * PAGE_BYTES;
}

static int up_to_the_limit(int device)
{
	uint64_t id;
	int first;

	CHECK(is_refused(device, LIMIT + 1, LIMIT));
	CHECK(list(device, &id, 1) == 0);
	first = must(create_pages(device, LIMIT - 1));
	CHECK(is_refused(device, 2, 1));
	CHECK(create_pages(device, 1) >= 0);
	CHECK(is_refused(device, 1, 0));
	CHECK(user_pages(device, geteuid()) == LIMIT);
	close(first);
	CHECK(create_pages(device, LIMIT) == error);
	CHECK(create_pages(device, LIMIT - 1) >= 0);
	/* Lower than the usage. */
	CHECK(reason != ACTMEM_WHY_MEMLOCK || !set_memlock(PAGE_BYTES));
	CHECK(is_refused(device, 1, 0));
	return 0;
}

TEST_F(user_limit, of_each_user)
{
	EXPECT_EQ(0, as_user(USER, up_to_the_limit, self->device));
	EXPECT_EQ(0, node_sum("region_bytes"));
	/* The first process left nothing behind. */
	EXPECT_EQ(0, as_user(USER, up_to_the_limit, self->device));
	EXPECT_EQ(0, as_user(OTHER_USER, up_to_the_limit, self->device));
}

static int hold_the_limit(void *device)
{
	CHECK(!become(USER));
	CHECK(create_pages(*(int *)device, LIMIT) >= 0);
	return 0;
}

static int another_process(int device)
{
	CHECK(is_refused(device, 1, 0));
	return 0;
}

TEST_F(user_limit, of_each_user_apart)
{
	pid_t child = hold_in_child(hold_the_limit, &self->device);

	ASSERT_LT(0, child);
	EXPECT_EQ(0, as_user(USER, another_process, self->device));
	EXPECT_EQ(0, as_user(OTHER_USER, up_to_the_limit, self->device));
	EXPECT_EQ(1, regions());
	EXPECT_EQ(0, kill_child(child));
	EXPECT_EQ(0, as_user(USER, up_to_the_limit, self->device));
}

/* CAP_IPC_LOCK lifts RLIMIT_MEMLOCK, but not the administrator's limit. */
TEST_F(user_limit, of_who_may_lock_memory)
{
	int fd;

	if (reason == ACTMEM_WHY_USER_LIMIT) {
		EXPECT_TRUE(is_refused(self->device, LIMIT + 1, LIMIT));
		EXPECT_EQ(0, as_user(0, up_to_the_limit, self->device));
		return;
	}
	fd = must(create_pages(self->device, LIMIT + 1));
	close(fd);
}

/* Two ends of pipes, for a parent that changes limits between the steps of its child. */
static int to_child[2], to_parent[2];

static bool step(int from, int to)
{
	char byte;

	return write(to, "", 1) == 1 && read(from, &byte, 1) == 1;
}

static int steps(int device)
{
	struct actmem_ioctl_create arg;
	struct actmem_ioctl_range there;
	int first, second;

	first = create_lazy(device, LIMIT);
	CHECK(first >= 0 && change_range(first, ACTMEM_IOC_POPULATE, 0, LIMIT, &there) == 0);
	CHECK(step(to_child[0], to_parent[1]));
	/* Lower than what is held now. What is there stays, and may be asked for. */
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 0, LIMIT, &there) == 0);
	arg = region_of(1);
	CHECK(create(device, &arg) == -EDQUOT && is_user_limit(&arg.why, 1, 0));
	CHECK(change_range(first, ACTMEM_IOC_DISCARD, 0, 2, &there) == 0);
	/* Just as many as are held: still none. */
	CHECK(create(device, &arg) == -EDQUOT && is_user_limit(&arg.why, 1, 0));
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 0, 1, &there) == -EDQUOT);
	CHECK(is_user_limit(&there.why, 1, 0) && there.done == 0);
	CHECK(change_range(first, ACTMEM_IOC_DISCARD, 2, 1, &there) == 0);
	CHECK(create(device, &arg) >= 0);
	CHECK(step(to_child[0], to_parent[1]));
	/* And higher again. */
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 0, 3, &there) == 0);
	second = create_pages(device, 4);
	CHECK(second >= 0 && create_pages(device, 1) == -EDQUOT);
	return 0;
}

static pid_t start_steps(struct __test_metadata *_metadata, int (*function)(int), int device)
{
	pid_t child;

	ASSERT_EQ(0, pipe(to_child));
	ASSERT_EQ(0, pipe(to_parent));
	child = start_child(USER, function, device);
	close(to_child[0]);
	close(to_parent[1]);
	return child;
}

static bool wait_for_step(void)
{
	char byte;

	return read(to_parent[0], &byte, 1) == 1;
}

static bool next_step(void)
{
	return write(to_child[1], "", 1) == 1;
}

static void end_steps(struct __test_metadata *_metadata, pid_t child)
{
	EXPECT_EQ(0, wait_for(child));
	close(to_child[1]);
	close(to_parent[0]);
}

TEST_F(limits, may_be_set_below_what_is_held)
{
	pid_t child;

	ASSERT_EQ(0, set_limit(USER_FILE, LIMIT));
	child = start_steps(_metadata, steps, self->device);
	ASSERT_TRUE(wait_for_step());
	ASSERT_EQ(0, set_limit(USER_FILE, LIMIT - 2));
	EXPECT_EQ(LIMIT, user_pages(self->device, USER));
	ASSERT_TRUE(next_step() && wait_for_step());
	ASSERT_EQ(0, set_limit(USER_FILE, 2 * LIMIT));
	ASSERT_TRUE(next_step());
	end_steps(_metadata, child);
}

/* Of LIMIT pages by RLIMIT_MEMLOCK, so many are left. */
static int count_left(int device)
{
	int fds[2 * LIMIT], left = 0;

	while (left < 2 * LIMIT && (fds[left] = create_pages(device, 1)) >= 0)
		left++;
	for (int i = 0; i < left; i++)
		close(fds[i]);
	return left;
}

/* One of the two holds after the other; all that there is counts for each. */
static int bound_by_turns(int device)
{
	struct actmem_ioctl_range there;
	int first, second;

	/* RLIMIT_MEMLOCK: 3 of it. */
	first = create_lazy(device, 8);
	second = create_pages(device, 1);
	CHECK(first >= 0 && second >= 0);
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 0, 2, &there) == 0);
	CHECK(count_left(device) == LIMIT - 3);
	CHECK(step(to_child[0], to_parent[1]));
	/* A limit in its stead: 4 more. */
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 2, 4, &there) == 0);
	CHECK(step(to_child[0], to_parent[1]));
	/* RLIMIT_MEMLOCK again, which is exceeded. */
	CHECK(count_left(device) == 0);
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 6, 2, &there) == -ENOMEM);
	CHECK(there.why.reason == ACTMEM_WHY_MEMLOCK && !there.why.available);
	CHECK(step(to_child[0], to_parent[1]));
	/* A limit that is exceeded, too. */
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 6, 2, &there) == -EDQUOT);
	CHECK(change_range(first, ACTMEM_IOC_DISCARD, 0, 4, &there) == 0);
	close(second);
	CHECK(step(to_child[0], to_parent[1]));
	CHECK(count_left(device) == LIMIT - 2);
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 0, LIMIT, &there) == -ENOMEM);
	CHECK(change_range(first, ACTMEM_IOC_POPULATE, 0, LIMIT - 2, &there) == 0);
	CHECK(count_left(device) == 0);
	close(first);
	CHECK(count_left(device) == LIMIT);
	return 0;
}

TEST_F(limits, stand_in_for_memlock_while_they_are_there)
{
	pid_t child;

	ASSERT_EQ(0, set_memlock(LIMIT * PAGE_BYTES));
	child = start_steps(_metadata, bound_by_turns, self->device);
	ASSERT_TRUE(wait_for_step());
	ASSERT_EQ(0, set_limit(USER_FILE, 100));
	ASSERT_TRUE(next_step() && wait_for_step());
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
	ASSERT_TRUE(next_step() && wait_for_step());
	ASSERT_EQ(0, set_limit(USER_FILE, 1));
	ASSERT_TRUE(next_step() && wait_for_step());
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
	ASSERT_TRUE(next_step());
	end_steps(_metadata, child);
}

/* What cannot be had is given back as it was reserved: not another page's charge. */
static int fault_in_vain(int device)
{
	struct actmem_ioctl_create arg = region_on(3, ACTMEM_POLICY_BIND, 1);
	struct actmem_ioctl_range there;

	arg.flags = LAZY;
	CHECK(create(device, &arg) >= 0);
	CHECK(change_range(arg.fd, ACTMEM_IOC_POPULATE, 0, 2, &there) == 0);
	CHECK(step(to_child[0], to_parent[1]));
	/* A limit in the stead of RLIMIT_MEMLOCK, and none of the node is left. */
	CHECK(touch_to_death(arg.fd, 3) == SIGBUS);
	CHECK(pages_held(arg.fd) == 2);
	CHECK(step(to_child[0], to_parent[1]));
	/* RLIMIT_MEMLOCK, and none of the node. */
	CHECK(touch_to_death(arg.fd, 3) == SIGBUS);
	CHECK(step(to_child[0], to_parent[1]));
	CHECK(count_left(device) == LIMIT - 2);
	close(arg.fd);
	CHECK(count_left(device) == LIMIT);
	return 0;
}

TEST_F(limits, in_vain)
{
	pid_t child;

	ASSERT_EQ(0, set_memlock(LIMIT * PAGE_BYTES));
	child = start_steps(_metadata, fault_in_vain, self->device);
	ASSERT_TRUE(wait_for_step());
	ASSERT_EQ(0, set_limit(USER_FILE, 100));
	ASSERT_EQ(0, set_limit(NODE_FILE, 2));
	ASSERT_TRUE(next_step() && wait_for_step());
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
	ASSERT_TRUE(next_step() && wait_for_step());
	ASSERT_EQ(0, set_limit(NODE_FILE, -1));
	ASSERT_TRUE(next_step());
	end_steps(_metadata, child);
}

static int lazily(int device)
{
	struct actmem_ioctl_range there;
	struct actmem_ioctl_info now;
	int fd = must(create_lazy(device, LIMIT + 3));

	CHECK(touch_to_death(fd, LIMIT + 1) == SIGBUS);
	CHECK(!info(fd, 0, &now) && now.allocated_bytes == LIMIT * PAGE_BYTES);
	CHECK(now.demand_faults == LIMIT);
	CHECK(change_range(fd, ACTMEM_IOC_POPULATE, 0, LIMIT + 3, &there) == -EDQUOT);
	CHECK(is_user_limit(&there.why, 3, 0));
	CHECK(change_range(fd, ACTMEM_IOC_DISCARD, 1, 2, &there) == 0);
	/* All or nothing. */
	CHECK(change_range(fd, ACTMEM_IOC_POPULATE, 0, LIMIT + 3, &there) == -EDQUOT);
	CHECK(is_user_limit(&there.why, 5, 2));
	CHECK(!info(fd, 0, &now) && now.allocated_bytes == (LIMIT - 2) * PAGE_BYTES);
	CHECK(change_range(fd, ACTMEM_IOC_POPULATE, LIMIT, 2, &there) == 0);
	CHECK(touch_to_death(fd, 2) == SIGBUS);
	CHECK(change_range(fd, ACTMEM_IOC_DISCARD, 0, LIMIT + 3, &there) == 0);
	CHECK(touch_to_death(fd, LIMIT) == 0);
	return 0;
}

TEST_F(limits, of_lazy_regions)
{
	ASSERT_EQ(0, set_limit(USER_FILE, LIMIT));
	EXPECT_EQ(0, as_user(USER, lazily, self->device));
}

static int region_of_other;

static int populate_for_other(int device)
{
	struct actmem_ioctl_range there;
	int fd = must(create_pages(device, 4));

	CHECK(create_pages(device, 1) == -EDQUOT);
	CHECK(change_range(region_of_other, ACTMEM_IOC_POPULATE, 0, 3, &there) == 0);
	CHECK(!touch_to_death(region_of_other, 4));
	close(fd);
	CHECK(change_range(region_of_other, ACTMEM_IOC_POPULATE, 0, 5, &there) == -EDQUOT);
	return 0;
}

/* Whoever populates: the region's owner pays, and the limit is the owner's. */
TEST_F(limits, of_the_owner)
{
	ASSERT_EQ(0, set_limit(USER_FILE, 4));
	region_of_other = must(create_lazy(self->device, 5));
	EXPECT_EQ(0, as_user(USER, populate_for_other, self->device));
	EXPECT_EQ(0, user_pages(self->device, USER));
	EXPECT_EQ(4, user_pages(self->device, 0));
	close(region_of_other);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
