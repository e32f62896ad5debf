/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the backend for a path or for a descriptor, from the type of the file system.
 */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/choose.h"
#include "region/names.h"
#include "../uapi/actmem.h"

#define MOUNT_MEMFD	"`mount -t hugetlbfs -o pagesize=2M,size=64G,mode=0770,gid=GROUP none /mnt/act1`"

struct kind {
	uint64_t device;
	char *type;
	size_t size;
};

static bool copy_type(void *context, const struct mount *mount)
{
	struct kind *kind = context;

	if (mount->device != kind->device)
		return false;
	snprintf(kind->type, kind->size, "%s", mount->type);
	return true;
}

/* Copies the type of a file system. Leaves @type unchanged if no mount of @device is listed. */
static void read_mount_type(uint64_t device, char *type, size_t size)
{
	struct kind kind = { device, type, size };

	mounts_find(copy_type, &kind);
}

static int refuse_file_system(const char *path, const char *type)
{
	return fail(EOPNOTSUPP, "%s is on a file system of type %s, which cannot contain regions; as root " MOUNT_DRIVER ", or without the driver " MOUNT_MEMFD ", and use a path there",
		    path, type);
}

int name_backend(const char *path, enum actmem_backend wanted, const struct backend **backend)
{
	char there[PATH_MAX], type[64] = "another kind";
	struct statfs files;
	struct stat found;

	strcpy(there, path);
	if (statfs(there, &files)) {
		if (errno == ENOENT)
			parent_of(there, path);
		if (errno != ENOENT || statfs(there, &files))
			return fail(errno, "cannot check %s (%s)", there, strerror(errno));
	}
	if (stat(there, &found))
		return fail(errno, "cannot check %s (%s)", there, strerror(errno));
	if (S_ISDIR(found.st_mode) && !strcmp(there, path))
		return fail(EINVAL, "%s is a folder; add a name: %s/NAME", path, path);
	if (files.f_type == ACTMEM_SUPER_MAGIC) {
		*backend = &backend_driver;
		if (wanted == ACTMEM_BACKEND_MEMFD)
			return fail(EINVAL, "%s is on the driver's file system, but the requested backend is memfd; request driver or auto with %s, or use a path on hugetlbfs or tmpfs",
				    path, KNOB(BACKEND));
		return 0;
	}
	read_mount_type(found.st_dev, type, sizeof(type));
	/* For devtmpfs, which is mounted on /dev, statfs() reports the type of tmpfs. */
	if ((files.f_type != HUGETLBFS_MAGIC && files.f_type != TMPFS_MAGIC) ||
	    !strcmp(type, "devtmpfs"))
		return refuse_file_system(path, type);
	*backend = &backend_memfd;
	if (wanted == ACTMEM_BACKEND_DRIVER)
		return fail(EINVAL, "%s is on %s, but the requested backend is driver; request memfd or auto with %s, or as root " MOUNT_DRIVER " and use a path there",
			    path, files.f_type == TMPFS_MAGIC ? "tmpfs" : "hugetlbfs",
			    KNOB(BACKEND));
	return 0;
}

int descriptor_backend(int fd, const struct backend **backend)
{
	struct statfs files;

	if (fstatfs(fd, &files))
		return fail(errno, "descriptor %d: %s", fd, strerror(errno));
	*backend = files.f_type == ACTMEM_SUPER_MAGIC ? &backend_driver : &backend_memfd;
	return 0;
}
