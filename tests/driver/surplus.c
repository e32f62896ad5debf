// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A limit that falls below the usage: which regions get a surplus and how much, how
 * poll(2) and epoll(7) report it, and that the usage then follows the limit.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

#include "names_test.h"

#define USER_FILE	SYSFS "/user_limit_bytes"
#define READY		(POLLIN | POLLOUT)

/* Returns the surplus in pages, or -1 if it differs from what poll(2) reports. */
static long surplus(int fd, uint32_t reason)
{
	struct pollfd poll_fd = { .fd = fd, .events = READY | POLLPRI };
	struct actmem_ioctl_info now;

	if (info(fd, 0, &now) || poll(&poll_fd, 1, 0) != 1)
		return -1;
	if (poll_fd.revents != (now.surplus_bytes ? READY | POLLPRI : READY))
		return -1;
	if (now.surplus_reason != (now.surplus_bytes ? reason : ACTMEM_WHY_NONE))
		return -1;
	return (long)(now.surplus_bytes / PAGE_BYTES);
}

TEST_F(names, the_surplus_over_the_limit_of_a_mount)
{
	int one = must(make_named(AT "/one", 6)), two = must(make_named(AT "/two", 6));
	int unnamed = must(create_pages(self->device, 4));

	ASSERT_EQ(0, populate(one, 0, 6));
	ASSERT_EQ(0, populate(two, 0, 2));
	EXPECT_EQ(0, surplus(one, ACTMEM_WHY_MOUNT_LIMIT));
	ASSERT_EQ(0, remount_names(AT, "size=8M"));
	EXPECT_EQ(3, surplus(one, ACTMEM_WHY_MOUNT_LIMIT));
	EXPECT_EQ(1, surplus(two, ACTMEM_WHY_MOUNT_LIMIT));
	EXPECT_EQ(0, surplus(unnamed, ACTMEM_WHY_MOUNT_LIMIT));
	EXPECT_EQ(-ENOSPC, populate(two, 2, 1));
	/* One of them returns its share, then the other one. */
	EXPECT_EQ(0, discard(one, 0, 3));
	EXPECT_EQ(1, surplus(two, ACTMEM_WHY_MOUNT_LIMIT));
	EXPECT_EQ(0, discard(two, 0, 1));
	EXPECT_EQ(0, surplus(one, ACTMEM_WHY_MOUNT_LIMIT));
	EXPECT_EQ(0, surplus(two, ACTMEM_WHY_MOUNT_LIMIT));
	EXPECT_EQ(4, pages_used(AT));
	EXPECT_EQ(-ENOSPC, populate(one, 0, 1));
	ASSERT_EQ(0, remount_names(AT, "size=16M"));
	EXPECT_EQ(0, populate(one, 0, 3));
	close(one);
	close(two);
	close(unnamed);
}

/* If the others return nothing, the rest of the excess falls to those that do. */
TEST_F(names, one_region_can_return_all_of_it)
{
	int one = must(make_named(AT "/one", 6)), two = must(make_named(AT "/two", 2));
	long pages;
	int round;

	ASSERT_EQ(0, populate(one, 0, 6));
	ASSERT_EQ(0, populate(two, 0, 2));
	ASSERT_EQ(0, remount_names(AT, "size=8M"));
	for (round = 0; round < 8; round++) {
		pages = surplus(one, ACTMEM_WHY_MOUNT_LIMIT);
		ASSERT_LE(0, pages);
		if (pages)
			ASSERT_EQ(0, discard(one, 6 - pages_held(one), pages));
	}
	EXPECT_EQ(2, pages_held(one));
	EXPECT_EQ(2, pages_held(two));
	close(one);
	close(two);
}

/* Open for writing, because the user may not open it. */
static int limit_file;

/* Regions of one user, and of another one that does not exceed its limit. */
static int of_user(int device)
{
	int one = must(create_pages(device, 4)), two = must(create_pages(device, 2));

	CHECK(dprintf(limit_file, "%zu", 3 * PAGE_BYTES) > 0);
	CHECK(surplus(one, ACTMEM_WHY_USER_LIMIT) == 2);
	CHECK(surplus(two, ACTMEM_WHY_USER_LIMIT) == 1);
	close(one);
	CHECK(surplus(two, ACTMEM_WHY_USER_LIMIT) == 0);
	return 0;
}

TEST_F(names, the_surplus_over_the_limit_of_a_user)
{
	int other = must(create_pages(self->device, 3));

	ASSERT_EQ(0, set_memlock(16 * PAGE_BYTES));
	limit_file = must(open(USER_FILE, O_WRONLY | O_CLOEXEC));
	EXPECT_EQ(0, as_user(USER, of_user, self->device));
	close(limit_file);
	EXPECT_EQ(0, surplus(other, ACTMEM_WHY_USER_LIMIT));
	ASSERT_EQ(0, set_limit(USER_FILE, 0));
	EXPECT_EQ(3, surplus(other, ACTMEM_WHY_USER_LIMIT));
	/* RLIMIT_MEMLOCK is not a limit that the administrator lowers. */
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
	EXPECT_EQ(0, surplus(other, ACTMEM_WHY_USER_LIMIT));
	close(other);
}

TEST_F(names, the_surplus_over_the_limits_of_nodes)
{
	struct actmem_ioctl_create arg = region_on(4, ACTMEM_POLICY_INTERLEAVE, 3);
	int spread, near;

	if (!node_memory(1, "MemTotal"))
		SKIP(return, "this machine has one memory node only");
	spread = must(create(self->device, &arg));
	arg = region_on(2, ACTMEM_POLICY_BIND, 1);
	near = must(create(self->device, &arg));
	ASSERT_EQ(0, set_node_limit(0, 2));
	EXPECT_EQ(1, surplus(spread, ACTMEM_WHY_NODE_LIMIT));
	EXPECT_EQ(1, surplus(near, ACTMEM_WHY_NODE_LIMIT));
	/* The pages on both nodes count together, and the larger excess decides. */
	ASSERT_EQ(0, set_node_limit(1, 0));
	EXPECT_EQ(3, surplus(spread, ACTMEM_WHY_NODE_LIMIT));
	ASSERT_EQ(0, set_limit(USER_FILE, 0));
	EXPECT_EQ(4, surplus(spread, ACTMEM_WHY_USER_LIMIT));
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
	ASSERT_EQ(0, set_node_limit(0, -1));
	ASSERT_EQ(0, set_node_limit(1, -1));
	EXPECT_EQ(0, surplus(spread, ACTMEM_WHY_NODE_LIMIT));
	close(spread);
	close(near);
}

static void *wait_for_surplus(void *context)
{
	struct epoll_event event = { .events = EPOLLPRI };
	int watch = epoll_create1(EPOLL_CLOEXEC), *fd = context;
	long found;

	if (watch < 0 || epoll_ctl(watch, EPOLL_CTL_ADD, *fd, &event))
		return (void *)-1;
	found = epoll_wait(watch, &event, 1, 60000);
	/* Level-triggered: it reports the event until the surplus is gone. */
	found += epoll_wait(watch, &event, 1, 0);
	found += discard(*fd, 0, 4) ? 100 : 0;
	found += epoll_wait(watch, &event, 1, 0) ? 100 : 0;
	close(watch);
	return (void *)found;
}

/* Each way to lower a limit wakes a thread that is waiting. */
TEST_F(names, a_limit_that_falls_wakes_those_who_wait)
{
	struct actmem_ioctl_create arg = region_on(4, ACTMEM_POLICY_BIND, 1);
	int named = must(make_named(AT "/region", 4)), unnamed = must(create(self->device, &arg));
	pthread_t thread;
	void *found;
	int way, fd;

	for (way = 0; way < 3; way++) {
		fd = way ? unnamed : named;
		ASSERT_EQ(0, populate(fd, 0, 4));
		ASSERT_EQ(0, pthread_create(&thread, NULL, wait_for_surplus, &fd));
		usleep(100000);
		EXPECT_EQ(0, way == 0 ? remount_names(AT, "size=2M") :
			     way == 1 ? set_limit(USER_FILE, 0) : set_node_limit(0, 0));
		ASSERT_EQ(0, pthread_join(thread, &found));
		EXPECT_EQ(2, (long)found);
		EXPECT_EQ(0, remount_names(AT, "size=16M"));
		EXPECT_EQ(0, set_limit(USER_FILE, -1));
		EXPECT_EQ(0, set_node_limit(0, -1));
	}
	close(named);
	close(unnamed);
}

TEST_F(names, an_empty_file_has_no_surplus)
{
	struct pollfd poll_fd = { .fd = must(make_file(AT "/empty")), .events = READY | POLLPRI };

	EXPECT_EQ(1, poll(&poll_fd, 1, 0));
	EXPECT_EQ(READY, poll_fd.revents);
	close(poll_fd.fd);
}

TEST_HARNESS_MAIN
