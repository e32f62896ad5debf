/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Creates the file of a named region, before the file gets its name, and checks that the file
 * system has the requested pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/memfd/memfd.h"
#include "region/memfd/pages.h"
#include "region/names.h"

struct huge {
	uint64_t device;
	char value[32];
};

static bool see_huge(void *context, const struct mount *mount)
{
	struct huge *huge = context;

	if (mount->device != huge->device)
		return false;
	if (!mount_option(mount, "huge=", huge->value, sizeof(huge->value)))
		strcpy(huge->value, "never");
	return true;
}

/* Checks that a tmpfs has the requested pages. */
static int check_tmpfs(const struct region_request *request, uint64_t device)
{
	struct huge huge = { .device = device };

	if (pages_are_hugetlb(request->pages))
		return fail(EOPNOTSUPP, "%s is on tmpfs, which has no hugetlb pages; use a path on hugetlbfs (as root `mount -t hugetlbfs -o pagesize=2M none /mnt/act1`), or allow other pages with %s",
			    request->path, KNOB(ALLOW_THP_4K));
	if (request->pages == ACTMEM_PAGES_THP && mounts_find(see_huge, &huge) &&
	    !strcmp(huge.value, "never"))
		return fail(EOPNOTSUPP, "%s is on a tmpfs that has no transparent huge pages; as root `mount -o remount,huge=advise %s`, or allow 4 KiB pages with %s",
			    request->path, MOUNT_TEXT(device), KNOB(ALLOW_4K));
	return 0;
}

int nameless_check_hugetlbfs(const struct region_request *request, uint64_t page_bytes)
{
	if (!pages_are_hugetlb(request->pages))
		return fail(EOPNOTSUPP, "%s is on hugetlbfs, which has only hugetlb pages, not %s; request those, or use a path on tmpfs",
			    request->path, page_names[request->pages]);
	if (page_bytes != pages_bytes(request->pages))
		return fail(EOPNOTSUPP, "%s is on a hugetlbfs with pages of %s; use one that is mounted with pagesize=%s",
			    request->path, BYTES_TEXT(page_bytes),
			    request->pages == ACTMEM_PAGES_1G ? "1G" : "2M");
	return 0;
}

/* Checks the limit of the mount. Without a limit, f_blocks is 0. */
static int check_space(const struct region_request *request, const struct statfs *files,
		       uint64_t device)
{
	uint64_t available = (uint64_t)files->f_bfree * (uint64_t)files->f_bsize;

	if (!files->f_blocks || available >= request->length)
		return 0;
	fail(ENOSPC, "the file system of %s has %s left, but %s are needed; remove files there, or as root ",
	     request->path, BYTES_TEXT(available), BYTES_TEXT(request->length));
	if (files->f_type == HUGETLBFS_MAGIC)
		fail_more("mount another hugetlbfs with a larger size= (a mounted hugetlbfs cannot change its size)");
	else
		fail_more("raise its size= with `mount -o remount,size=%lluM %s`",
			  ((unsigned long long)files->f_blocks * (unsigned long long)files->f_bsize +
			   request->length - available + (1 << 20) - 1) >> 20, MOUNT_TEXT(device));
	return -ENOSPC;
}

int nameless_make(const struct region_request *request, int *fd)
{
	char folder[PATH_MAX];
	struct statfs files;
	struct stat stat;
	int error;

	parent_of(folder, request->path);
	*fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (*fd < 0)
		return fail(errno, "cannot make a file in %s (%s)", folder, strerror(errno));
	request_tell_fd(request, *fd);
	if (fstat(*fd, &stat) || fstatfs(*fd, &files))
		error = fail(errno, "cannot check %s (%s)", folder, strerror(errno));
	else if (files.f_type == HUGETLBFS_MAGIC)
		error = nameless_check_hugetlbfs(request, (uint64_t)files.f_bsize);
	else if (files.f_type == TMPFS_MAGIC)
		error = check_tmpfs(request, stat.st_dev);
	else
		error = fail(EINVAL, "%s is neither on hugetlbfs nor on tmpfs any more", folder);
	if (!error)
		error = check_space(request, &files, stat.st_dev);
	if (error)
		request_close_fd(request, *fd);
	return error;
}
