// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Mounting: options, limits, remounts, several mounts, who sees and who may use
 * them, and what keeps them.
 */
#include "names_test.h"

#include <sched.h>
#include <sys/sysmacros.h>

#define NAME	AT "/region"
#define OTHER	"/tmp/actmem-other"

/* What the kernel says of a mount with the option; "" if it mounts it. */
static const char *complaint(const char *key, const char *value)
{
	static char words[256];
	int context = syscall(SYS_fsopen, "actmem", 1 /* FSOPEN_CLOEXEC */);
	ssize_t length = 0;

	*words = '\0';
	if (context < 0)
		return "no context";
	if (syscall(SYS_fsconfig, context, 1 /* FSCONFIG_SET_STRING */, key, value, 0) ||
	    syscall(SYS_fsconfig, context, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0)) {
		length = read(context, words, sizeof(words) - 1);
		words[length > 0 ? length : 0] = '\0';
	}
	close(context);
	return words;
}

#define SIZE_ERROR(text) "e actmem: size=" text ": write a multiple of 2 MiB, such as 64G, or 50%\n"
#define NODE_ERROR "e actmem: node= takes nodes that have memory, such as 0-1:3\n"

TEST_F(names, what_is_wrong_is_told)
{
	EXPECT_STREQ("", complaint("size", "2M"));
	EXPECT_STREQ("", complaint("size", "100%"));
	EXPECT_STREQ(SIZE_ERROR("0"), complaint("size", "0"));
	EXPECT_STREQ(SIZE_ERROR("0%"), complaint("size", "0%"));
	EXPECT_STREQ(SIZE_ERROR("3M"), complaint("size", "3M"));
	EXPECT_STREQ(SIZE_ERROR("-2M"), complaint("size", "-2M"));
	EXPECT_STREQ(SIZE_ERROR("G"), complaint("size", "G"));
	EXPECT_STREQ(SIZE_ERROR("2MB"), complaint("size", "2MB"));
	/* 2^64 and 2 MiB. */
	EXPECT_STREQ(SIZE_ERROR("17592186044418M"), complaint("size", "17592186044418M"));
	EXPECT_STREQ(SIZE_ERROR("18446744073711648768"), complaint("size", "18446744073711648768"));
	EXPECT_STREQ(SIZE_ERROR("101%"), complaint("size", "101%"));
	EXPECT_STREQ("e actmem: Bad value for 'nr_inodes'\n", complaint("nr_inodes", "16E"));
	EXPECT_STREQ("", complaint("nr_inodes", "64k"));
	EXPECT_STREQ("", complaint("nr_inodes", "0"));
	EXPECT_STREQ("e actmem: Bad value for 'nr_inodes'\n", complaint("nr_inodes", "-1"));
	EXPECT_STREQ("e actmem: Bad value for 'nr_inodes'\n", complaint("nr_inodes", ""));
	EXPECT_STREQ("e actmem: Bad value for 'nr_inodes'\n", complaint("nr_inodes", "50%"));
	EXPECT_STREQ("", complaint("node", "0:0"));
	EXPECT_STREQ("", complaint("node", "0,0"));
	/* Without memory, more than there can be, no number, and none. */
	EXPECT_STREQ(NODE_ERROR, complaint("node", "63"));
	EXPECT_STREQ(NODE_ERROR, complaint("node", "0:63"));
	EXPECT_STREQ(NODE_ERROR, complaint("node", "99999"));
	EXPECT_STREQ(NODE_ERROR, complaint("node", "one"));
	EXPECT_STREQ(NODE_ERROR, complaint("node", ":"));
	EXPECT_STREQ("e actmem: policy=bind needs node=; preferred takes one node\n",
		     complaint("policy", "bind"));
	EXPECT_STREQ("e actmem: Bad value for 'policy'\n", complaint("policy", "best"));
	EXPECT_STREQ("e actmem: Bad value for 'uid'\n", complaint("uid", "4294967295"));
	EXPECT_STREQ("e actmem: Bad value for 'gid'\n", complaint("gid", "4294967295"));
	EXPECT_STREQ("e actmem: Bad value for 'mode'\n", complaint("mode", "10755"));
	EXPECT_STREQ("e actmem: Unknown parameter 'colour'\n", complaint("colour", "red"));
	EXPECT_STREQ("e actmem: Unknown parameter '1'\n", complaint("1", "1"));
}

/* The options of the mount, as /proc/mounts shows them. */
static const char *shown(const char *at)
{
	static char options[256];
	char line[512], where[128];
	FILE *file = fopen("/proc/mounts", "re");

	*options = '\0';
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "none %127s actmem %255s", where, options) == 2 &&
		    !strcmp(where, at))
			break;
	if (file)
		fclose(file);
	return options;
}

TEST_F(names, options_are_shown_and_hold)
{
	struct actmem_ioctl_info now;
	struct stat status;
	int fd;

	EXPECT_STREQ("rw,relatime,size=16M,mode=777,uid=0,gid=0,policy=preferred", shown(AT));
	ASSERT_EQ(0, mkdir(OTHER, 0755));
	ASSERT_EQ(0, mount_names(OTHER, "mode=01770,uid=1000,gid=7,node=0-1,policy=interleave"));
	EXPECT_STREQ("rw,relatime,mode=1770,uid=1000,gid=7,node=0:1,policy=interleave",
		     shown(OTHER));
	ASSERT_EQ(0, stat(OTHER, &status));
	EXPECT_EQ(S_IFDIR | 01770, status.st_mode);
	EXPECT_EQ(1000, status.st_uid);
	EXPECT_EQ(7, status.st_gid);
	fd = make_named(OTHER "/region", 4);
	ASSERT_EQ(0, populate(fd, 0, 4));
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(ACTMEM_POLICY_INTERLEAVE, now.policy);
	EXPECT_EQ(3, now.nodes[0]);
	EXPECT_EQ(2 * PAGE_BYTES, number_in(SYSFS "/node1/region_bytes"));
	close(fd);
	ASSERT_EQ(0, unmount(OTHER));
	EXPECT_EQ(-EINVAL, mount_names(OTHER, "node=0:1,policy=preferred"));
	ASSERT_EQ(0, mount_names(OTHER, "node=1"));
	EXPECT_STREQ("rw,relatime,mode=755,uid=0,gid=0,node=1,policy=bind", shown(OTHER));
	fd = make_named(OTHER "/region", 1);
	ASSERT_EQ(0, populate(fd, 0, 1));
	EXPECT_EQ((long)PAGE_BYTES, number_in(SYSFS "/node1/region_bytes"));
	close(fd);
	ASSERT_EQ(0, unmount(OTHER));
	ASSERT_EQ(0, rmdir(OTHER));
}

TEST_F(names, nothing_there_can_be_run)
{
	int fd = make_named(NAME, 1);
	char *memory = mapped(map(fd, 1));

	memcpy(memory, "#!", 2);
	munmap(memory, PAGE_BYTES);
	ASSERT_EQ(0, fchmod(fd, 0777));
	close(fd);
	EXPECT_ERRNO(EACCES, execl(NAME, NAME, NULL));
	EXPECT_ERRNO(EPERM, mknod(AT "/null", S_IFCHR | 0666, makedev(1, 3)));
}

TEST_F(names, the_limit_holds_for_all_regions_of_the_mount)
{
	struct actmem_ioctl_range arg;
	int one = make_named(AT "/one", LIMIT), two = make_named(AT "/two", LIMIT);

	ASSERT_EQ(0, populate(one, 0, LIMIT - 1));
	EXPECT_EQ(-ENOSPC, change_range(two, ACTMEM_IOC_POPULATE, 0, 2, &arg));
	EXPECT_EQ(ACTMEM_WHY_MOUNT_LIMIT, arg.why.reason);
	EXPECT_EQ(2 * PAGE_BYTES, arg.why.wanted);
	EXPECT_EQ(PAGE_BYTES, arg.why.available);
	EXPECT_EQ(0, arg.done);
	EXPECT_EQ(LIMIT - 1, pages_used(AT));
	EXPECT_EQ(0, populate(two, 0, 1));
	EXPECT_EQ(-ENOSPC, populate(two, 1, 1));
	EXPECT_EQ(SIGBUS, touch_to_death(two, 2));
	EXPECT_EQ(LIMIT, pages_used(AT));
	close(two);
	ASSERT_EQ(0, unlink(AT "/two"));
	EXPECT_EQ(LIMIT - 1, pages_used(AT));
	EXPECT_EQ(0, populate(one, 0, LIMIT));
	EXPECT_EQ(0, discard(one, 0, 1));
	EXPECT_EQ(LIMIT - 1, pages_used(AT));
	close(one);
}

/* Unnamed regions and another mount's have nothing to do with it. */
TEST_F(names, a_mount_is_a_file_system_of_its_own)
{
	int one = make_named(NAME, LIMIT), two, unnamed;
	char *memory, byte;

	ASSERT_EQ(0, populate(one, 0, LIMIT));
	memory = mapped(map(one, 1));
	memory[5] = 1;
	munmap(memory, PAGE_BYTES);
	unnamed = create_pages(self->device, 1);
	EXPECT_LE(0, unnamed);
	close(unnamed);
	ASSERT_EQ(0, mkdir(OTHER, 0755));
	ASSERT_EQ(0, mount_names(OTHER, LIMIT_OPTION));
	EXPECT_ERRNO(ENOENT, open(OTHER "/region", O_RDWR));
	two = make_named(OTHER "/region", 1);
	ASSERT_EQ(1, pread(two, &byte, 1, 5));
	EXPECT_EQ(0, byte);
	EXPECT_EQ(0, populate(two, 0, 1));
	EXPECT_EQ(1, pages_used(OTHER));
	EXPECT_ERRNO(EXDEV, link(NAME, OTHER "/link"));
	close(one);
	close(two);
	EXPECT_EQ(0, unmount(OTHER));
	EXPECT_EQ(1, regions());
	ASSERT_EQ(0, rmdir(OTHER));
}

/* Inodes that may still be had, by what df -i asks. */
static long free_inodes(const char *at)
{
	struct statfs stat;

	return statfs(at, &stat) ? -1 : (long)stat.f_ffree;
}

TEST_F(names, the_limit_can_be_changed)
{
	int fd = make_named(NAME, LIMIT + 1);

	ASSERT_EQ(0, populate(fd, 0, 4));
	/* Below the usage, too: then nothing is free. */
	EXPECT_EQ(0, remount_names(AT, "size=6M,nr_inodes=5"));
	EXPECT_EQ(3, free_inodes(AT));
	EXPECT_EQ(4, pages_used(AT));
	EXPECT_EQ(-ENOSPC, populate(fd, 4, 1));
	EXPECT_EQ(0, remount_names(AT, "size=8M,nr_inodes=64k"));
	EXPECT_EQ(-ENOSPC, populate(fd, 4, 1));
	/* A remount may repeat the options that are shown. */
	EXPECT_EQ(0, remount_names(AT, "size=18M,mode=777,uid=0,gid=0,policy=preferred"));
	EXPECT_EQ(0, populate(fd, 0, LIMIT + 1));
	EXPECT_EQ(-EINVAL, remount_names(AT, "mode=0700"));
	EXPECT_EQ(-EINVAL, remount_names(AT, "uid=1"));
	EXPECT_EQ(-EINVAL, remount_names(AT, "gid=1"));
	EXPECT_EQ(-EINVAL, remount_names(AT, "node=0"));
	EXPECT_EQ(-EINVAL, remount_names(AT, "policy=interleave"));
	EXPECT_EQ(-EINVAL, remount_names(AT, "size=32M,node=0"));
	EXPECT_STREQ("rw,relatime,size=18M,mode=777,uid=0,gid=0,policy=preferred", shown(AT));
	close(fd);
}

/* Each way to get pages; none of them is to be had. */
static int what_is_refused(int err)
{
	int fd = make_named(NAME, LIMIT);

	CHECK(fd >= 0 && pages_used(AT) == 0);
	CHECK(populate(fd, 0, 2) == err && pages_used(AT) == 0);
	CHECK(touch_to_death(fd, 1) == SIGBUS && pages_used(AT) == 0);
	close(fd);
	return unlink(NAME);
}

/* The mount's size= is reserved before others are asked. */
TEST_F(names, what_others_refuse_is_given_back)
{
	ASSERT_EQ(0, set_memlock(0));
	EXPECT_EQ(0, as_user(USER, what_is_refused, -ENOMEM));
	ASSERT_EQ(0, put(SYSFS "/user_limit_bytes", "0"));
	EXPECT_EQ(0, as_user(USER, what_is_refused, -EDQUOT));
	ASSERT_EQ(0, put(SYSFS "/user_limit_bytes", "max"));
	ASSERT_EQ(0, put(SYSFS "/node0/limit_bytes", "0"));
	EXPECT_EQ(0, unmount(AT));
	ASSERT_EQ(0, mount_names(AT, LIMIT_OPTION ",node=0"));
	EXPECT_EQ(0, as_user(0, what_is_refused, -EDQUOT));
	ASSERT_EQ(0, put(SYSFS "/node0/limit_bytes", "max"));
	EXPECT_EQ(0, regions());
}

static int make_and_close(const char *path)
{
	int fd = make_file(path);

	return fd < 0 ? fd : close(fd);
}

/* Files that have no region yet, and all else that has a name. */
TEST_F(names, inodes_are_limited)
{
	int fd;

	ASSERT_EQ(65535, free_inodes(AT));
	ASSERT_EQ(0, remount_names(AT, "nr_inodes=4"));
	ASSERT_EQ(3, free_inodes(AT));
	ASSERT_EQ(0, make_and_close(AT "/a"));
	ASSERT_EQ(0, mkdir(AT "/b", 0700));
	ASSERT_EQ(0, make_and_close(AT "/c"));
	ASSERT_EQ(0, free_inodes(AT));
	EXPECT_EQ(-ENOSPC, make_and_close(AT "/e"));
	EXPECT_EQ(-1, mkdir(AT "/e", 0700));
	EXPECT_ERRNO(ENOSPC, open(AT, O_TMPFILE | O_RDWR, 0600));
	EXPECT_EQ(0, remount_names(AT, "nr_inodes=3"));
	EXPECT_EQ(0, free_inodes(AT));
	ASSERT_EQ(0, remount_names(AT, "nr_inodes=4"));
	ASSERT_EQ(0, rename(AT "/a", AT "/c"));
	EXPECT_EQ(1, free_inodes(AT));

	/* Without a name it counts as long as it is open, and with one only once. */
	fd = open(AT, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, free_inodes(AT));
	close(fd);
	EXPECT_EQ(1, free_inodes(AT));
	fd = open(AT, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, linkat(fd, "", AT_FDCWD, AT "/e", AT_EMPTY_PATH));
	close(fd);
	EXPECT_EQ(0, free_inodes(AT));

	ASSERT_EQ(0, unlink(AT "/e"));
	ASSERT_EQ(0, unlink(AT "/c"));
	ASSERT_EQ(0, rmdir(AT "/b"));
	EXPECT_EQ(3, free_inodes(AT));
	ASSERT_EQ(0, remount_names(AT, "nr_inodes=0"));
	EXPECT_EQ(0, free_inodes(AT));
	EXPECT_NE(NULL, strstr(shown(AT), ",nr_inodes=0,"));
	ASSERT_EQ(0, make_and_close(AT "/a"));
	ASSERT_EQ(0, unlink(AT "/a"));
	ASSERT_EQ(0, remount_names(AT, "nr_inodes=64k"));
	EXPECT_EQ(NULL, strstr(shown(AT), "nr_inodes"));
}

TEST_F(names, is_busy_as_long_as_it_is_used)
{
	int fd = make_named(NAME, 1);
	char *memory = map_and_touch(fd, 1);

	EXPECT_EQ(-EBUSY, unmount(AT));
	close(fd);
	EXPECT_EQ(-EBUSY, unmount(AT));
	/* The module is in use by the mount alone, too. */
	munmap(memory, PAGE_BYTES);
	close(self->device);
	EXPECT_EQ(-1, syscall(SYS_delete_module, "actmem", O_NONBLOCK));
	EXPECT_TRUE(errno == EWOULDBLOCK || errno == EBUSY);
	self->device = open_device();
	EXPECT_EQ(0, unmount(AT));
	EXPECT_EQ(0, regions());
	ASSERT_EQ(0, mount_names(AT, LIMIT_OPTION));
}

TEST_F(names, can_be_unmounted_lazily)
{
	int fd = make_named(NAME, 2);
	char *memory = mapped(map(fd, 2));

	memory[0] = 1;
	ASSERT_EQ(0, umount2(AT, MNT_DETACH));
	EXPECT_EQ(-1, open(NAME, O_RDWR));
	EXPECT_EQ(1, memory[0]);
	memory[PAGE_BYTES] = 2;
	close(fd);
	EXPECT_EQ(1, regions());
	EXPECT_EQ(2 * (long)PAGE_BYTES, node_sum("region_bytes"));
	munmap(memory, 2 * PAGE_BYTES);
	EXPECT_EQ(0, regions());
	ASSERT_EQ(0, mount_names(AT, LIMIT_OPTION));
}

/* Pinned pages count until they are let go of, whatever has become of the rest. */
TEST_F(names, a_pin_outlives_the_mount)
{
	int fd = make_named(NAME, 2), ends[2];
	char *memory = map_and_touch(fd, 2);

	ASSERT_EQ(0, hold(memory, ends));
	munmap(memory, 2 * PAGE_BYTES);
	close(fd);
	ASSERT_EQ(0, unlink(NAME));
	EXPECT_EQ(1, lingering_regions());
	EXPECT_EQ(1, pages_used(AT));
	ASSERT_EQ(0, unmount(AT));
	EXPECT_EQ(1, lingering_regions());
	let_go(ends);
	EXPECT_EQ(0, regions());
	ASSERT_EQ(0, mount_names(AT, LIMIT_OPTION));
}

static int mount_elsewhere(int device)
{
	CHECK(!unshare(CLONE_NEWNS));
	CHECK(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	CHECK(!mount_names(AT, "size=2M"));
	CHECK(make_named(NAME, 1) >= 0);
	CHECK(regions() == 1);
	return 0;
}

TEST_F(names, is_seen_in_its_mount_namespace_only)
{
	ASSERT_EQ(0, as_user(0, mount_elsewhere, self->device));
	EXPECT_EQ(-1, open(NAME, O_RDWR));
	EXPECT_EQ(0, regions());
}

static int mount_as_user(int device)
{
	CHECK(mount_names("/tmp", "") == -EPERM);
	CHECK(!unshare(CLONE_NEWUSER | CLONE_NEWNS));
	CHECK(mount_names("/tmp", "") == -EPERM);
	return 0;
}

TEST_F(names, only_the_administrator_mounts)
{
	EXPECT_EQ(0, as_user(USER, mount_as_user, self->device));
}

static int use_as_owner(int device)
{
	int fd = must(make_file(NAME));

	CHECK(!set_memlock(PAGE_BYTES));
	CHECK(!ftruncate(fd, 2 * PAGE_BYTES));
	CHECK(!populate(fd, 0, 1));
	/* As of any other region of this user. */
	CHECK(populate(fd, 1, 1) == -ENOMEM);
	CHECK(!fchmod(fd, 0640));
	CHECK(user_pages(device, USER) == 1);
	CHECK(fchown(fd, OTHER_USER, -1) && errno == EPERM);
	CHECK(remount_names(AT, "size=32M") == -EPERM);
	return 0;
}

static int use_as_stranger(int device)
{
	CHECK(open(NAME, O_RDWR) == -1 && errno == EACCES);
	CHECK(open(NAME, O_RDONLY) == -1 && errno == EACCES);
	CHECK(chmod(NAME, 0666) == -1 && errno == EPERM);
	CHECK(truncate(NAME, 0) == -1 && errno == EACCES);
	CHECK(unlink(NAME) == -1 && errno == EPERM);
	return 0;
}

static int use_as_reader(int device)
{
	struct actmem_ioctl_info now;
	int fd = open(NAME, O_RDONLY | O_CLOEXEC);
	char byte;

	CHECK(fd >= 0);
	CHECK(open(NAME, O_RDWR) == -1 && errno == EACCES);
	CHECK(read(fd, &byte, 1) == 1);
	CHECK(!info(fd, 0, &now));
	CHECK(now.uid == USER);
	CHECK(populate(fd, 0, 1) == -EBADF);
	CHECK(discard(fd, 0, 1) == -EBADF);
	CHECK(mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	return 0;
}

/* By RLIMIT_MEMLOCK of one page. */
static int has_all_of_a_page(int device)
{
	CHECK(!set_memlock(PAGE_BYTES));
	CHECK(create_pages(device, 1) == -ENOMEM);
	return 0;
}

static int has_none_of_a_page(int device)
{
	CHECK(!set_memlock(PAGE_BYTES));
	CHECK(create_pages(device, 1) >= 0);
	return 0;
}

TEST_F(names, permissions_are_those_of_files)
{
	struct actmem_ioctl_info now;
	uint64_t id;

	ASSERT_EQ(0, chmod(AT, 01777));
	ASSERT_EQ(0, as_user(USER, use_as_owner, self->device));
	EXPECT_EQ(0, as_user(OTHER_USER, use_as_stranger, self->device));
	ASSERT_EQ(0, chmod(NAME, 0644));
	EXPECT_EQ(0, as_user(OTHER_USER, use_as_reader, self->device));
	EXPECT_EQ(1, user_pages(self->device, USER));
	EXPECT_EQ(0, user_pages(self->device, OTHER_USER));
	ASSERT_EQ(1, list(self->device, &id, 1));
	ASSERT_EQ(0, info(self->device, id, &now));
	EXPECT_EQ(USER, now.uid);
	/* The owner of the file does not matter to whom the region counts for. */
	ASSERT_EQ(0, chown(NAME, OTHER_USER, 0));
	EXPECT_EQ(0, as_user(USER, has_all_of_a_page, self->device));
	EXPECT_EQ(0, as_user(OTHER_USER, has_none_of_a_page, self->device));
	ASSERT_EQ(0, unlink(NAME));
	EXPECT_EQ(0, as_user(USER, has_none_of_a_page, self->device));
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
