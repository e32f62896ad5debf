// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Each allocation and each copy from and to user space fails once, in what is
 * done with a mount and its files: it tells of it and leaves nothing.
 */
#include "names_test.h"
#include "fault_sweep.h"

#define NAME	AT "/region"
#define OTHER	"/tmp/actmem-other"

static int mount_it(struct operation *self, int device)
{
	return mount_names(OTHER, "size=16M,mode=0700,uid=1,gid=1,node=0,policy=bind");
}

static int unmount_it(struct operation *self, int device, int result)
{
	CHECK(result || !unmount(OTHER));
	CHECK(unmount(OTHER) == -EINVAL);
	return 0;
}

TEST_F(names, mount)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 7, .act = mount_it, .undo = unmount_it,
	};

	ASSERT_EQ(0, mkdir(OTHER, 0755));
	EXPECT_SWEEP(operation, self->device);
	ASSERT_EQ(0, rmdir(OTHER));
}

static int change_limit(struct operation *self, int device)
{
	return remount_names(AT, "size=4M");
}

/* The limit is as it was or as it is to be. */
static int change_back(struct operation *self, int device, int result)
{
	struct statfs status;

	CHECK(!statfs(AT, &status));
	CHECK(status.f_blocks == (result ? LIMIT : 2));
	CHECK(!remount_names(AT, "size=16M"));
	return 0;
}

TEST_SWEEP(names, remount,
	.where = IN_MODULE, .least = 1, .act = change_limit, .undo = change_back)

static int make_names(struct operation *self, int device)
{
	int fd = make_file(NAME);

	if (fd < 0)
		return fd;
	close(fd);
	if (mkdir(AT "/directory", 0755) || rename(NAME, AT "/renamed"))
		return -errno;
	fd = open(AT, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* Whatever there came to be can be removed. */
static int remove_names(struct operation *self, int device, int result)
{
	struct dirent *entry;
	DIR *directory;

	rmdir(AT "/directory");
	unlink(AT "/renamed");
	unlink(NAME);
	directory = opendir(AT);
	CHECK(directory);
	while ((entry = readdir(directory)))
		CHECK(*entry->d_name == '.');
	closedir(directory);
	return 0;
}

TEST_SWEEP(names, names,
	.where = IN_MODULE, .least = 3, .act = make_names, .undo = remove_names)

static int prepare_file(struct operation *self, int device)
{
	self->fd = must(make_file(NAME));
	return 0;
}

static int remove_file(struct operation *self, int device, int result)
{
	CHECK(!close(self->fd));
	CHECK(!unlink(NAME));
	CHECK(!pages_used(AT));
	return 0;
}

/* A file that was not given its region is as empty as before, and can be given one. */
static int check_length(struct operation *self, int device, int result)
{
	struct stat status;

	CHECK(!fstat(self->fd, &status));
	CHECK(status.st_size == (result ? 0 : (off_t)(PAGES * PAGE_BYTES)));
	CHECK(regions() == !result);
	CHECK(!ftruncate(self->fd, PAGES * PAGE_BYTES));
	CHECK(regions() == 1);
	return remove_file(self, device, result);
}

static int give_length(struct operation *self, int device)
{
	return ftruncate(self->fd, PAGES * PAGE_BYTES) ? -errno : 0;
}

static int give_policy(struct operation *self, int device)
{
	struct actmem_ioctl_create arg = region_on(PAGES, ACTMEM_POLICY_BIND, 1);

	return call(self->fd, ACTMEM_IOC_CREATE, &arg);
}

/* The table of pages tries an allocation twice, so that one of two may fail. */
TEST_SWEEP(names, truncate,
	.where = IN_MODULE, .least = 2, .prepare = prepare_file, .act = give_length,
	.undo = check_length)

TEST_SWEEP(names, create,
	.where = IN_MODULE, .least = 4, .prepare = prepare_file, .act = give_policy,
	.undo = check_length)

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
