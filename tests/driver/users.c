// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Users: whom a region counts for, and how long. And what may be written to the
 * limits in sysfs, by whom.
 */
#include <sched.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "driver_test.h"

#define USER_FILE	SYSFS "/user_limit_bytes"
#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

static bool reads(const char *path, const char *expected)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	if (length < 1)
		return false;
	text[length - 1] = '\0';
	return !strcmp(text, expected);
}

static int check_limit_file(const char *path)
{
	static const struct {
		const char *text;
		int err;
		const char *shown;
	} cases[] = {
		{ "0", 0, "0" },
		{ "0\n", 0, "0" },
		{ "2097152\n", 0, "2097152" },
		{ "2097151", -EINVAL, "2097152" },
		{ "2097153", -EINVAL, "2097152" },
		{ "1", -EINVAL, "2097152" },
		{ "-1", -EINVAL, "2097152" },
		{ "-2097152", -EINVAL, "2097152" },
		{ "4194304 4194304", -EINVAL, "2097152" },
		{ "4194304\n4194304", -EINVAL, "2097152" },
		{ "4194304\n\n", -EINVAL, "2097152" },
		{ "\n", -EINVAL, "2097152" },
		{ " ", -EINVAL, "2097152" },
		{ "maximum", -EINVAL, "2097152" },
		{ "ma", -EINVAL, "2097152" },
		{ "max 2097152", -EINVAL, "2097152" },
		{ "MAX", -EINVAL, "2097152" },
		/* Suffixes, and what is none. */
		{ "4M", 0, "4194304" },
		{ "6m\n", 0, "6291456" },
		{ "2048K", 0, "2097152" },
		{ "2k", -EINVAL, "2097152" },
		{ "3M", -EINVAL, "2097152" },
		{ "2MB", -EINVAL, "2097152" },
		{ "2M 2M", -EINVAL, "2097152" },
		{ "2 M", -EINVAL, "2097152" },
		{ "M", -EINVAL, "2097152" },
		{ "-2M", -EINVAL, "2097152" },
		{ "2.0M", -EINVAL, "2097152" },
		{ "2X", -EINVAL, "2097152" },
		{ "3G", 0, "3221225472" },
		{ "2t", 0, "2199023255552" },
		{ "1P", 0, "1125899906842624" },
		{ "15E", 0, "17293822569102704640" },
		/* The last multiple of 2 MiB, and what follows it. */
		{ "18446744073707454464", 0, "18446744073707454464" },
		{ "18446744073707454465", -EINVAL, "18446744073707454464" },
		{ "18446744073709551615", -EINVAL, "18446744073707454464" },
		/* What does not fit 64 bits. */
		{ "18446744073709551616", -EINVAL, "18446744073707454464" },
		{ "18446744073713745920", -EINVAL, "18446744073707454464" },
		{ "16E", -EINVAL, "18446744073707454464" },
		{ "17592186044418M", -EINVAL, "18446744073707454464" },
		/* Numbers are decimal. */
		{ "0x400000", -EINVAL, "18446744073707454464" },
		{ "04194304", 0, "4194304" },
		{ "max\n", 0, "max" },
		{ "4194304", 0, "4194304" },
		{ "max", 0, "max" },
	};
	size_t i;

	CHECK(reads(path, "max"));
	for (i = 0; i < COUNT(cases); i++) {
		int err = put(path, cases[i].text);

		if (err == cases[i].err && reads(path, cases[i].shown))
			continue;
		fprintf(stderr, "# '%s' to %s: %d\n", cases[i].text, path, err);
		return __LINE__;
	}
	return 0;
}

TEST_F(driver, limits_that_can_be_written)
{
	EXPECT_EQ(0, check_limit_file(USER_FILE));
	EXPECT_EQ(0, check_limit_file(SYSFS "/node0/limit_bytes"));
}

static const char *const writable[] = { USER_FILE, SYSFS "/node0/limit_bytes" };

static const char *const read_only[] = {
	SYSFS "/regions", SYSFS "/lingering_regions", SYSFS "/node0/region_bytes",
	SYSFS "/node0/lingering_bytes",
};

static int without_privilege(int device)
{
	size_t i;

	for (i = 0; i < COUNT(writable); i++) {
		CHECK(put(writable[i], "0") == -EACCES);
		CHECK(reads(writable[i], "max"));
	}
	for (i = 0; i < COUNT(read_only); i++) {
		CHECK(put(read_only[i], "0") == -EACCES);
		CHECK(reads(read_only[i], "0"));
	}
	return 0;
}

TEST_F(driver, who_may_write)
{
	size_t i;

	EXPECT_EQ(0, as_user(USER, without_privilege, self->device));
	/* As for root, whom no mode of a file stops. */
	for (i = 0; i < COUNT(read_only); i++)
		EXPECT_GT(0, put(read_only[i], "0"));
}

static int has_room_for_all(int device)
{
	CHECK(create_pages(device, 4) == -EDQUOT);
	CHECK(create_pages(device, 3) >= 0);
	return 0;
}

static int has_room_for_two(int device)
{
	CHECK(create_pages(device, 3) == -EDQUOT);
	CHECK(create_pages(device, 2) >= 0);
	return 0;
}

static int pin_pipe[2];

/* The pipe goes on holding the page when the child has gone. */
static int leave_a_pin(int device)
{
	struct iovec vector = { NULL, 4096 };
	int fd = must(create_pages(device, 3));

	vector.iov_base = mapped(map_and_touch(fd, 3));
	CHECK(vmsplice(pin_pipe[1], &vector, 1, 0) == 4096);
	return 0;
}

TEST_F(driver, what_lingers_counts_for_its_user)
{
	int round;

	ASSERT_EQ(0, set_limit(USER_FILE, 3));
	for (round = 0; round < 5; round++) {
		ASSERT_EQ(0, pipe2(pin_pipe, O_CLOEXEC));
		ASSERT_EQ(0, as_user(USER, leave_a_pin, self->device));
		EXPECT_EQ(1, regions());
		EXPECT_EQ(1, user_pages(self->device, USER));
		EXPECT_EQ((long)PAGE_BYTES, node_sum("lingering_bytes"));
		EXPECT_EQ(0, as_user(USER, has_room_for_two, self->device));
		EXPECT_EQ(0, as_user(OTHER_USER, has_room_for_all, self->device));
		close(pin_pipe[0]);
		close(pin_pipe[1]);
		EXPECT_EQ(0, regions());
		EXPECT_EQ(0, as_user(USER, has_room_for_all, self->device));
	}
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
}

static int with_its_rights_kept(int device)
{
	struct actmem_ioctl_info now;
	int fd;

	/* The effective user alone: the region is its, and so is the limit. */
	CHECK(!setresuid(-1, USER, -1));
	fd = create_pages(device, 1);
	CHECK(fd >= 0 && !info(fd, 0, &now) && now.uid == USER);
	CHECK(create_pages(device, 3) == -EDQUOT);
	CHECK(!setresuid(-1, 0, -1));
	CHECK(!as_user(USER, has_room_for_two, device));
	CHECK(!as_user(OTHER_USER, has_room_for_all, device));
	return 0;
}

TEST_F(driver, the_effective_user_counts)
{
	ASSERT_EQ(0, set_limit(USER_FILE, 3));
	EXPECT_EQ(0, as_user(0, with_its_rights_kept, self->device));
	EXPECT_EQ(0, as_user(USER, has_room_for_all, self->device));
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
}

static int in_a_namespace(int device)
{
	CHECK(create_pages(device, 1) >= 0);
	/* Having changed its user, the process does not own its own /proc. */
	CHECK(!prctl(PR_SET_DUMPABLE, 1));
	CHECK(!unshare(CLONE_NEWUSER));
	CHECK(!put("/proc/self/setgroups", "deny"));
	CHECK(!put("/proc/self/uid_map", "0 1000 1"));
	CHECK(getuid() == 0);
	CHECK(create_pages(device, 64) == -ENOMEM);
	CHECK(create_pages(device, 63) >= 0);
	return 0;
}

/* All rights that there are in a namespace do not pass over RLIMIT_MEMLOCK. */
TEST_F(driver, a_namespace_is_its_owners)
{
	ASSERT_EQ(0, set_memlock(64 * PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, in_a_namespace, self->device));
}

#define SUBUIDS	20

static int namespace_pipe[2][2];

/* One page by each of the uids that the namespace has; the limit is 3. */
static int by_several_uids(int device)
{
	char byte;
	int i, fd;

	CHECK(!prctl(PR_SET_DUMPABLE, 1));
	CHECK(!unshare(CLONE_NEWUSER));
	CHECK(write(namespace_pipe[0][1], "", 1) == 1);
	CHECK(read(namespace_pipe[1][0], &byte, 1) == 1);
	for (i = 0; i < SUBUIDS; i++) {
		CHECK(!setresuid(i, i, 0));
		fd = create_pages(device, 1);
		CHECK(i < 3 ? fd >= 0 : fd == -EDQUOT);
		CHECK(!setresuid(0, 0, 0));
	}
	return 0;
}

/* As of /etc/subuid: what they have counts for the owner of the user namespace. */
TEST_F(driver, subordinate_uids_count_for_their_owner)
{
	char path[64], byte;
	pid_t child;

	ASSERT_EQ(0, set_limit(USER_FILE, 3));
	ASSERT_TRUE(!pipe(namespace_pipe[0]) && !pipe(namespace_pipe[1]));
	child = start_child(USER, by_several_uids, self->device);
	ASSERT_EQ(1, read(namespace_pipe[0][0], &byte, 1));
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	ASSERT_EQ(0, put(path, "0 1000 1\n1 100000 20"));
	ASSERT_EQ(1, write(namespace_pipe[1][1], "", 1));
	EXPECT_EQ(0, wait_for(child));
	EXPECT_EQ(0, as_user(USER, has_room_for_all, self->device));
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
}

/* Root's new container: a user namespace, whose root is the machine's. */
static int enter_container(void)
{
	if (unshare(CLONE_NEWUSER))
		return -errno;
	return put("/proc/self/setgroups", "deny") ?: put("/proc/self/uid_map", "0 0 1") ?:
	       put("/proc/self/gid_map", "0 0 1");
}

static int hold_all_in_a_container(void *device)
{
	CHECK(!enter_container());
	return has_room_for_all(*(int *)device);
}

static int in_another_container(int device)
{
	CHECK(!enter_container());
	CHECK(!has_room_for_all(device));
	/* A namespace inside the container is the container's. */
	CHECK(!enter_container());
	CHECK(create_pages(device, 1) == -EDQUOT);
	return 0;
}

TEST_F(driver, containers_of_root_have_separate_limits)
{
	pid_t child;

	ASSERT_EQ(0, set_limit(USER_FILE, 3));
	child = hold_in_child(hold_all_in_a_container, &self->device);
	ASSERT_LT(0, child);
	EXPECT_EQ(0, as_user(0, in_another_container, self->device));
	EXPECT_EQ(0, as_user(0, has_room_for_all, self->device));
	EXPECT_EQ(0, kill_child(child));
	ASSERT_EQ(0, set_limit(USER_FILE, -1));
}

/* Touches a page that is there, then one that is missing. */
static int touch_as_reader(int fd)
{
	const volatile char *memory = mapped(mmap(NULL, 2 * PAGE_BYTES, PROT_READ, MAP_SHARED, fd,
						  0));

	CHECK(memory[0] == 1);
	CHECK(memory[PAGE_BYTES] == 1);
	return 0;
}

TEST_F(driver, a_reader_does_not_use_the_quota_of_the_owner)
{
	int fd = must(create_lazy(self->device, 2)), reader = must(reopen(fd, O_RDONLY)), status;
	char *memory = mapped(map(fd, 2));
	pid_t child;

	memory[0] = 1;
	child = start_child(USER, touch_as_reader, reader);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(SIGBUS, WTERMSIG(status));
	EXPECT_EQ(1, pages_held(fd));
	memory[PAGE_BYTES] = 1;
	EXPECT_EQ(0, as_user(USER, touch_as_reader, reader));
	EXPECT_EQ(2, pages_held(fd));
	munmap(memory, 2 * PAGE_BYTES);
	close(reader);
	close(fd);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
