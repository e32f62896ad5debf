// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Permissions to see regions: a user's own, everybody's with CAP_SYS_ADMIN, and
 * how user, process and memory are shown to whom.
 */
#include <sched.h>

#include "driver_test.h"

/* What a child made and shares with the test. */
struct shared {
	uint64_t id;
	int fd;
};

static struct shared *shared;

static int make_one(void *device)
{
	struct actmem_ioctl_create arg = region_of(1);

	CHECK(!become(USER));
	CHECK(create(*(int *)device, &arg) >= 0);
	shared->id = arg.id;
	shared->fd = arg.fd;
	return 0;
}

static int sees_its_own(int device)
{
	struct actmem_ioctl_create arg = region_of(1);
	struct actmem_ioctl_info now;
	uint64_t ids[4];

	CHECK(list(device, ids, 4) == 0);
	CHECK(create(device, &arg) >= 0);
	CHECK(list(device, ids, 4) == 1 && ids[0] == arg.id);
	CHECK(info(device, arg.id, &now) == 0 && now.uid == OTHER_USER);
	CHECK(info(device, shared->id, &now) == -EPERM);
	CHECK(info(device, shared->id + 1000, &now) == -ENOENT);
	CHECK(info(arg.fd, 0, &now) == 0);
	return 0;
}

static int is_listed_to_its_owner(int device)
{
	struct actmem_ioctl_info now;
	uint64_t ids[4];

	/* Another process of the same user. */
	CHECK(list(device, ids, 4) == 1 && ids[0] == shared->id);
	CHECK(info(device, ids[0], &now) == 0 && now.uid == USER);
	return 0;
}

FIXTURE(holder)
{
	int device;
	pid_t child;
};

FIXTURE_SETUP(holder)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, shared);
	self->device = open_device();
	self->child = hold_in_child(make_one, &self->device);
	ASSERT_LT(0, self->child);
}

FIXTURE_TEARDOWN(holder)
{
	if (self->child)
		EXPECT_EQ(0, kill_child(self->child));
	EXPECT_EQ(0, regions());
	close(self->device);
}

TEST_F(holder, a_user_sees_its_own_regions)
{
	EXPECT_EQ(0, as_user(USER, is_listed_to_its_owner, self->device));
	EXPECT_EQ(0, as_user(OTHER_USER, sees_its_own, self->device));
}

/* In a pid namespace of its own, as a container's: of the same user, but made outside. */
static int sees_what_its_container_made(int device)
{
	struct actmem_ioctl_create arg = region_of(1);
	struct actmem_ioctl_info now;
	uint64_t ids[4];

	CHECK(list(device, ids, 4) == 0);
	CHECK(info(device, shared->id, &now) == -EPERM);
	CHECK(create(device, &arg) >= 0);
	CHECK(list(device, ids, 4) == 1 && ids[0] == arg.id);
	return 0;
}

TEST_F(holder, a_container_sees_its_own_regions)
{
	/* For its children. */
	ASSERT_EQ(0, unshare(CLONE_NEWPID));
	EXPECT_EQ(0, as_user(USER, sees_what_its_container_made, self->device));
}

TEST_F(holder, the_administrator_sees_all)
{
	struct actmem_ioctl_create arg = region_of(1);
	struct actmem_ioctl_info now;
	uint64_t ids[4];

	ASSERT_LE(0, create(self->device, &arg));
	ASSERT_EQ(2, list(self->device, ids, 4));
	EXPECT_EQ(shared->id, ids[0]);
	EXPECT_EQ(arg.id, ids[1]);
	ASSERT_EQ(0, info(self->device, ids[0], &now));
	EXPECT_EQ(USER, now.uid);
	EXPECT_EQ(self->child, now.pid);
	close(arg.fd);
}

TEST_F(holder, a_maker_that_is_not_seen_has_no_number)
{
	/* Not yet one of the namespace, that is for its children. */
	ASSERT_EQ(0, unshare(CLONE_NEWPID));
	pid_t child = fork();

	if (!child) {
		struct actmem_ioctl_create arg = region_of(1);
		struct actmem_ioctl_info now;

		if (info(self->device, shared->id, &now) || now.pid != ACTMEM_PID_ELSEWHERE)
			_exit(1);
		if (create(self->device, &arg) < 0 || info(arg.fd, 0, &now) || now.pid != 1)
			_exit(2);
		/* No user of this namespace: the number that stands for that. */
		if (unshare(CLONE_NEWUSER) || info(arg.fd, 0, &now) || now.uid != 65534)
			_exit(3);
		_exit(0);
	}
	EXPECT_EQ(0, wait_for(child));
}

TEST_F(holder, a_process_that_has_ended)
{
	struct actmem_ioctl_info now;
	char path[64];
	int fd;

	/* Its region is kept by another. */
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", self->child, shared->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(self->child, now.pid);
	EXPECT_EQ(0, kill_child(self->child));
	self->child = 0;
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(0, now.pid);
	EXPECT_EQ(USER, now.uid);
	close(fd);
}

TEST_F(driver, identifiers_are_not_used_again)
{
	struct actmem_ioctl_create arg = region_of(1);
	uint64_t last = 0;
	int i;

	for (i = 0; i < 20; i++) {
		ASSERT_LE(0, create(self->device, &arg));
		EXPECT_LT(last, arg.id);
		last = arg.id;
		close(arg.fd);
		arg = region_of(1);
	}
}

TEST_F(driver, fdinfo)
{
	struct actmem_ioctl_create arg = region_of(3);
	char path[64], text[4096] = "", line[128];
	const char *lines[] = {
		"actmem-name:\tlayer 7\n", "actmem-length:\t6291456\n",
		"actmem-allocated:\t4194304\n",
	};
	size_t i;
	int fd;

	arg.flags = LAZY;
	snprintf(arg.name, sizeof(arg.name), "layer 7");
	ASSERT_LE(0, create(self->device, &arg));
	ASSERT_EQ(0, populate(arg.fd, 1, 2));

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", arg.fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	ASSERT_LT(0, read(fd, text, sizeof(text) - 1));
	close(fd);
	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		EXPECT_NE(NULL, strstr(text, lines[i]))
			TH_LOG("no %s in %s", lines[i], text);
	snprintf(line, sizeof(line), "actmem-id:\t%llu\n", (unsigned long long)arg.id);
	EXPECT_NE(NULL, strstr(text, line));
	close(arg.fd);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
