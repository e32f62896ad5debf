/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Resolves, opens, links and locks the files of named regions. Functions that can fail return 0, or
 * -errno with an error message, unless noted.
 */
#ifndef LIB_REGION_NAMES_H
#define LIB_REGION_NAMES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "actmem.h"
#include "base/base.h"
#include "region/backend.h"

/* The command that mounts the driver's file system, for error messages. */
#define MOUNT_DRIVER	"`mount -t actmem -o size=64G,mode=0770,gid=actmem none /mnt/act1`"

/* Finds the absolute path of @name. A name without '/' is in the first actmem mount. */
int name_to_path(const char *name, char path[PATH_MAX]);

/* Copies the directory part of the absolute path @path to @folder. */
void parent_of(char folder[PATH_MAX], const char *path);

/*
 * Opens the request's path with the open(2) flags @flags, and those that the request's
 * ACTMEM_OPEN_READ and ACTMEM_OPEN_OWN imply. Fails if the path is not a regular file. Sets *@stat.
 */
int name_open(const struct region_request *request, int flags, int *fd, struct stat *stat);

/* Locks a file for ACTMEM_OPEN_LOCK. Returns -EBUSY if another descriptor holds the lock. */
int name_lock(int fd, const char *path);

/* Gives the name @path to a file without a name (linkat(2)). Sets no error message. */
int name_link(int fd, const char *path);

/*
 * Stores in @text the path where the file system of @device is mounted, or "" if no mount is
 * listed. Returns @text.
 */
const char *mount_text(char text[PATH_TEXT_MAX], uint64_t device);

#define MOUNT_TEXT(device)	mount_text((char[PATH_TEXT_MAX]){0}, (device))

#endif /* LIB_REGION_NAMES_H */
