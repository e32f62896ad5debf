/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of the mounted file system share: a mount for each test, which
 * must be left with nothing in use.
 */
#ifndef NAMES_TEST_H
#define NAMES_TEST_H

#include <sys/mount.h>
#include <sys/vfs.h>

#include "driver_test.h"

/* Pages that a mount may have, unless a test says otherwise. */
#define LIMIT		8
#define LIMIT_OPTION	"size=16M,mode=0777"

#define AT		"/tmp/actmem-names"

static inline int mount_names(const char *at, const char *options)
{
	return mount("none", at, "actmem", 0, options) ? -errno : 0;
}

static inline int remount_names(const char *at, const char *options)
{
	return mount("none", at, "actmem", MS_REMOUNT, options) ? -errno : 0;
}

static inline int unmount(const char *at)
{
	return umount2(at, 0) ? -errno : 0;
}

/* The descriptor of an empty file, or a negative errno. */
static inline int make_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	return fd < 0 ? -errno : fd;
}

/* The same of a lazy region of so many pages. */
static inline int make_named(const char *path, size_t pages)
{
	int fd = make_file(path);

	if (fd < 0)
		return fd;
	if (!ftruncate(fd, pages * PAGE_BYTES))
		return fd;
	close(fd);
	unlink(path);
	return -errno;
}

/* As df(1) tells; -1 if it cannot. */
static inline long pages_used(const char *at)
{
	struct statfs status;

	if (statfs(at, &status) || (size_t)status.f_bsize != PAGE_BYTES)
		return -1;
	return status.f_blocks - status.f_bfree;
}

static inline long pages_allocated(int fd)
{
	struct stat status;

	return fstat(fd, &status) ? -1 : status.st_blocks * 512 / (long)PAGE_BYTES;
}

FIXTURE(names)
{
	int device;
};

FIXTURE_SETUP(names)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
	umask(0);
	ASSERT_TRUE(!mkdir(AT, 0755) || errno == EEXIST);
	ASSERT_EQ(0, mount_names(AT, LIMIT_OPTION));
}

/* Names are left to the unmounting, but nothing that is in use. */
FIXTURE_TEARDOWN(names)
{
	EXPECT_EQ(0, unmount(AT));
	EXPECT_EQ(0, regions());
	close(self->device);
	EXPECT_EQ(0, number_in("/sys/module/actmem/refcnt"));
	EXPECT_EQ(0, rmdir(AT));
}

#endif
