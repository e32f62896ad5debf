/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Names of regions: where they lie, whose they are, and which of a heap's are
 * taken. Functions that can fail return 0 or -errno with words.
 */
#ifndef LIB_NAMES_H
#define LIB_NAMES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "actmem.h"
#include "region/backend.h"

#define HEAP_NAMES_MAX	4096

/* Which of the files PATH.0, PATH.1 ... heaps of one handle have. */
struct heap_names {
	char *path;			/* absolute; NULL: heaps have no names */
	uint64_t taken[HEAP_NAMES_MAX / 64];	/* under the handles lock */
};

/* The absolute path of @name, which without a '/' is in the first mounted actmem. */
int name_to_path(const char *name, char path[PATH_MAX]);

/* The directory that an absolute path is in. */
void parent_of(char folder[PATH_MAX], const char *path);

/* The backend of the file system that @path is on, if it may be @wanted. */
int name_backend(const char *path, enum actmem_backend wanted, const struct backend **backend);

/* The same of the file system that a region received from elsewhere is on. */
int descriptor_backend(int fd, const struct backend **backend);

/* Opens @path, which the flags of the request may do, and looks what it is. */
int name_open(const struct region_request *request, int flags, int *fd, struct stat *stat);

/* For ACTMEM_OPEN_LOCK: -EBUSY if somebody else has it. */
int name_lock(int fd, const char *path);

/* Gives a file that has none the name @path; without words. */
int name_link(int fd, const char *path);

/* The name of a file, as far as it is one that a region can bear. */
void name_label(char label[ACTMEM_NAME_MAX], const char *path);

/* Where the file system of @device is mounted, for words: "" if that is not told. */
const char *mount_text(char text[ACTMEM_PATH_MAX], uint64_t device);

#define MOUNT_TEXT(device)	mount_text((char[ACTMEM_PATH_MAX]){0}, (device))

/* Makes and frees the names of a handle's heaps; @name NULL: they have none. */
int heap_names_init(struct heap_names *names, const char *name, enum actmem_backend wanted);
void heap_names_destroy(struct heap_names *names);

/* The lowest number that is free; -EMFILE: none. */
int heap_names_take(struct heap_names *names, unsigned int *number);
void heap_names_give(struct heap_names *names, unsigned int number);

#endif /* LIB_NAMES_H */
