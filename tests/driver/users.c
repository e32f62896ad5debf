// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The directories of users in sysfs: when they are there, whose regions they
 * count, and what may be written to them and to the limits.
 */
#include <sched.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "driver_test.h"

#define USERS		SYSFS "/users"
#define USERS_OWN	USERS "/1000"

static bool is_there(const char *path)
{
	return !access(path, F_OK);
}

/* A directory goes a while after there is no reason for it. */
static void wait_until_gone(const char *path)
{
	while (is_there(path))
		usleep(10000);
}

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
		{ "2M", -EINVAL, "2097152" },
		{ "0x200000", -EINVAL, "2097152" },
		{ "4194304 4194304", -EINVAL, "2097152" },
		{ "\n", -EINVAL, "2097152" },
		{ " ", -EINVAL, "2097152" },
		{ "maximum", -EINVAL, "2097152" },
		{ "ma", -EINVAL, "2097152" },
		{ "max 2097152", -EINVAL, "2097152" },
		{ "MAX", -EINVAL, "2097152" },
		/* The last multiple of 2 MiB, what follows it, and beyond 64 bits. */
		{ "18446744073707454464", 0, "18446744073707454464" },
		{ "18446744073707454465", -EINVAL, "18446744073707454464" },
		{ "18446744073709551615", -EINVAL, "18446744073707454464" },
		{ "18446744073709551616", -ERANGE, "18446744073707454464" },
		{ "99999999999999999999999999", -ERANGE, "18446744073707454464" },
		{ "max\n", 0, "max" },
		{ "4194304", 0, "4194304" },
		{ "max", 0, "max" },
	};
	size_t i;

	CHECK(reads(path, "max"));
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
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
	ASSERT_EQ(0, put(USERS "/add", "1000"));
	EXPECT_EQ(0, check_limit_file(SYSFS "/user_limit_bytes"));
	EXPECT_EQ(0, check_limit_file(SYSFS "/node0/limit_bytes"));
	EXPECT_EQ(0, check_limit_file(USERS_OWN "/limit_bytes"));
	ASSERT_EQ(0, put(USERS "/remove", "1000"));
	EXPECT_FALSE(is_there(USERS_OWN));
}

TEST_F(driver, users_that_can_be_written)
{
	static const struct {
		const char *text;
		int err;
	} cases[] = {
		{ "-1", -EINVAL }, { "root", -EINVAL }, { "", 0 }, { "\n", -EINVAL },
		{ "1000 1001", -EINVAL }, { "0x10", -EINVAL }, { "1000,", -EINVAL },
		{ "4294967295", -EINVAL }, { "4294967296", -ERANGE },
		{ "18446744073709551616", -ERANGE },
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		EXPECT_EQ(cases[i].err, put(USERS "/add", cases[i].text))
			TH_LOG("add %s", cases[i].text);
		EXPECT_EQ(cases[i].err, put(USERS "/remove", cases[i].text))
			TH_LOG("remove %s", cases[i].text);
	}
	EXPECT_EQ(-ENOENT, put(USERS "/remove", "1000"));
	EXPECT_EQ(0, put(USERS "/add", "4294967294\n"));
	EXPECT_TRUE(reads(USERS "/4294967294/limit_bytes", "max"));
	EXPECT_TRUE(reads(USERS "/4294967294/regions", "0"));
	/* Twice is no more than once. */
	EXPECT_EQ(0, put(USERS "/add", "4294967294"));
	EXPECT_EQ(0, put(USERS "/remove", "4294967294"));
	EXPECT_FALSE(is_there(USERS "/4294967294"));
	EXPECT_EQ(-ENOENT, put(USERS "/remove", "4294967294"));
}

static const char *const writable[] = {
	SYSFS "/user_limit_bytes", SYSFS "/node0/limit_bytes", USERS_OWN "/limit_bytes",
};

static const char *const write_only[] = { USERS "/add", USERS "/remove" };

static const char *const read_only[] = {
	USERS_OWN "/regions", USERS_OWN "/region_bytes",
	USERS_OWN "/lingering_bytes",
};

#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

static int without_privilege(int device)
{
	size_t i;

	for (i = 0; i < COUNT(writable); i++) {
		CHECK(put(writable[i], "0") == -EACCES);
		CHECK(reads(writable[i], "max"));
	}
	for (i = 0; i < COUNT(write_only); i++) {
		CHECK(put(write_only[i], "1001") == -EACCES);
		CHECK(open(write_only[i], O_RDONLY) < 0 && errno == EACCES);
	}
	for (i = 0; i < COUNT(read_only); i++) {
		CHECK(put(read_only[i], "0") == -EACCES);
		CHECK(reads(read_only[i], "0"));
	}
	CHECK(mkdir(USERS "/1001", 0755));
	CHECK(rmdir(USERS_OWN));
	return 0;
}

TEST_F(driver, who_may_write)
{
	size_t i;

	ASSERT_EQ(0, put(USERS "/add", "1000"));
	EXPECT_EQ(0, as_user(USER, without_privilege, self->device));
	/* As for root, whom no mode of a file stops. */
	for (i = 0; i < COUNT(read_only); i++)
		EXPECT_GT(0, put(read_only[i], "0"));
	for (i = 0; i < COUNT(write_only); i++)
		EXPECT_GT(0, open(write_only[i], O_RDONLY));
	ASSERT_EQ(0, put(USERS "/remove", "1000"));
}

static int comes_with_a_region(int device)
{
	int first, second;

	CHECK(!is_there(USERS_OWN));
	first = create_pages(device, 2);
	CHECK(first >= 0);
	CHECK(reads(USERS_OWN "/regions", "1") && reads(USERS_OWN "/region_bytes", "4194304"));
	CHECK(reads(USERS_OWN "/lingering_bytes", "0") && reads(USERS_OWN "/limit_bytes", "max"));
	second = create_pages(device, 1);
	CHECK(second >= 0);
	CHECK(reads(USERS_OWN "/regions", "2") && reads(USERS_OWN "/region_bytes", "6291456"));
	close(first);
	CHECK(reads(USERS_OWN "/regions", "1") && reads(USERS_OWN "/region_bytes", "2097152"));
	close(second);
	return 0;
}

TEST_F(driver, a_directory_comes_and_goes_with_regions)
{
	wait_until_gone(USERS_OWN);
	ASSERT_EQ(0, set_memlock(64 * PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, comes_with_a_region, self->device));
	wait_until_gone(USERS_OWN);
	EXPECT_EQ(0, as_user(USER, comes_with_a_region, self->device));
	wait_until_gone(USERS_OWN);
}

static int make_one(int device)
{
	CHECK(create_pages(device, 1) >= 0);
	return 0;
}

TEST_F(driver, a_limit_keeps_its_directory)
{
	ASSERT_EQ(0, set_memlock(64 * PAGE_BYTES));
	ASSERT_EQ(0, put(USERS "/add", "1000"));
	ASSERT_EQ(0, put(USERS_OWN "/limit_bytes", "8388608"));
	ASSERT_EQ(0, as_user(USER, make_one, self->device));
	/* More than the time after which one without a reason is gone. */
	ASSERT_EQ(0, as_user(OTHER_USER, make_one, self->device));
	wait_until_gone(USERS "/1001");
	EXPECT_TRUE(reads(USERS_OWN "/limit_bytes", "8388608"));
	/* Having been added is reason enough. */
	ASSERT_EQ(0, put(USERS_OWN "/limit_bytes", "max"));
	ASSERT_EQ(0, as_user(OTHER_USER, make_one, self->device));
	wait_until_gone(USERS "/1001");
	EXPECT_TRUE(is_there(USERS_OWN));
	ASSERT_EQ(0, put(USERS "/remove", "1000"));
	EXPECT_FALSE(is_there(USERS_OWN));
}

static int counted_again(int device)
{
	CHECK(create_pages(device, 1) >= 0);
	CHECK(user_number(USER, "regions") == 1);
	return 0;
}

/* Removed while the user has a region: the directory goes after that. */
TEST_F(driver, remove_a_user_with_regions)
{
	int fd;

	ASSERT_EQ(0, put(USERS "/add", "0"));
	ASSERT_EQ(0, put(USERS "/0/limit_bytes", "8388608"));
	fd = create_pages(self->device, 2);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, put(USERS "/remove", "0"));
	EXPECT_TRUE(reads(USERS "/0/limit_bytes", "max"));
	EXPECT_TRUE(reads(USERS "/0/regions", "1"));
	close(fd);
	wait_until_gone(USERS "/0");
	ASSERT_EQ(0, set_memlock(64 * PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, counted_again, self->device));
}

static int pin_pipe[2];

/* The pipe goes on holding the page when the child has gone. */
static int leave_a_pin(int device)
{
	struct iovec vector = { NULL, 4096 };
	int fd = create_pages(device, 3);

	CHECK(fd >= 0);
	vector.iov_base = map_and_touch(fd, 3);
	CHECK(vector.iov_base != MAP_FAILED);
	CHECK(vmsplice(pin_pipe[1], &vector, 1, 0) == 4096);
	return 0;
}

TEST_F(driver, the_directory_lasts_as_long_as_pages_do)
{
	int round;

	ASSERT_EQ(0, set_memlock(64 * PAGE_BYTES));
	for (round = 0; round < 5; round++) {
		ASSERT_EQ(0, pipe2(pin_pipe, O_CLOEXEC));
		ASSERT_EQ(0, as_user(USER, leave_a_pin, self->device));
		EXPECT_TRUE(reads(USERS_OWN "/regions", "1"));
		EXPECT_TRUE(reads(USERS_OWN "/region_bytes", "2097152"));
		EXPECT_TRUE(reads(USERS_OWN "/lingering_bytes", "2097152"));
		close(pin_pipe[0]);
		close(pin_pipe[1]);
		wait_for_sweep();
		/* It is there for a while longer, however long that takes to read. */
		EXPECT_EQ(0, user_number(USER, "lingering_bytes"));
		EXPECT_EQ(0, user_number(USER, "regions"));
		wait_until_gone(USERS_OWN);
	}
}

static int with_its_rights_kept(int device)
{
	/* The effective user alone: the region is its, the right to lock is still there. */
	CHECK(!setresuid(-1, USER, -1));
	CHECK(create_pages(device, 1) >= 0);
	CHECK(reads(USERS_OWN "/regions", "1"));
	return 0;
}

static int in_a_namespace(int device)
{
	/* Having changed its user, the process does not own its own /proc. */
	CHECK(!prctl(PR_SET_DUMPABLE, 1));
	CHECK(!unshare(CLONE_NEWUSER));
	CHECK(!put("/proc/self/setgroups", "deny"));
	CHECK(!put("/proc/self/uid_map", "0 1000 1"));
	CHECK(getuid() == 0);
	CHECK(create_pages(device, 1) >= 0);
	CHECK(reads(USERS_OWN "/regions", "1"));
	CHECK(create_pages(device, 64) == -ENOMEM);
	return 0;
}

static int namespace_pipe[2][2];

/* One page by each of the uids that the namespace has; the limit is 3. */
static int by_several_uids(int device)
{
	static const uid_t uids[] = { 0, 1, 2, 3 };
	char byte;
	size_t i;
	int fd;

	CHECK(!prctl(PR_SET_DUMPABLE, 1));
	CHECK(!unshare(CLONE_NEWUSER));
	CHECK(write(namespace_pipe[0][1], "", 1) == 1);
	CHECK(read(namespace_pipe[1][0], &byte, 1) == 1);
	for (i = 0; i < COUNT(uids); i++) {
		CHECK(!setresuid(uids[i], uids[i], 0));
		fd = create_pages(device, 1);
		CHECK(i < 3 ? fd >= 0 : fd == -EDQUOT);
		CHECK(!setresuid(0, 0, 0));
	}
	CHECK(user_number(USER, "region_bytes") == 3 * (long)PAGE_BYTES);
	CHECK(user_number(100000, "region_bytes") == 0);
	return 0;
}

/* As of /etc/subuid: what they have counts for the owner of the user namespace. */
TEST_F(driver, subordinate_uids_count_for_their_owner)
{
	char path[64], byte;
	pid_t child;

	ASSERT_EQ(0, put(USERS "/add", "1000"));
	ASSERT_EQ(0, set_limit(USERS_OWN "/limit_bytes", 3));
	ASSERT_TRUE(!pipe(namespace_pipe[0]) && !pipe(namespace_pipe[1]));
	child = fork();
	if (!child)
		_exit(become(USER) || by_several_uids(self->device));
	ASSERT_EQ(1, read(namespace_pipe[0][0], &byte, 1));
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	ASSERT_EQ(0, put(path, "0 1000 1\n1 100000 8"));
	ASSERT_EQ(1, write(namespace_pipe[1][1], "", 1));
	EXPECT_EQ(0, wait_for(child));
	ASSERT_EQ(0, put(USERS "/remove", "1000"));
	wait_until_gone(USERS_OWN);
}

TEST_F(driver, whose_region_it_is)
{
	ASSERT_EQ(0, set_memlock(64 * PAGE_BYTES));
	EXPECT_EQ(0, as_user(0, with_its_rights_kept, self->device));
	EXPECT_EQ(0, as_user(USER, in_a_namespace, self->device));
	wait_until_gone(USERS_OWN);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
