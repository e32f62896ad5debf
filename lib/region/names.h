/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Names of regions: where they lie and whose they are. Functions that can fail return
 * 0 or -errno with words.
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

/* How the driver's file system is mounted, for words. */
#define MOUNT_DRIVER	"`mount -t actmem -o size=64G,mode=0770,gid=actmem none /mnt/act1`"

/* The absolute path of @name, which without a '/' is in the first mounted actmem. */
int name_to_path(const char *name, char path[PATH_MAX]);

/* The directory that an absolute path is in. */
void parent_of(char folder[PATH_MAX], const char *path);

/* Opens @path, which the flags of the request may do, and looks what it is. */
int name_open(const struct region_request *request, int flags, int *fd, struct stat *stat);

/* Locks a file for ACTMEM_OPEN_LOCK: -EBUSY if somebody else has it. */
int name_lock(int fd, const char *path);

/* Gives a file that has none the name @path; without words. */
int name_link(int fd, const char *path);

/* Tells in words where the file system of @device is mounted: "" if that is not known. */
const char *mount_text(char text[PATH_TEXT_MAX], uint64_t device);

#define MOUNT_TEXT(device)	mount_text((char[PATH_TEXT_MAX]){0}, (device))

#endif /* LIB_REGION_NAMES_H */
