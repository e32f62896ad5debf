/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the file systems that are mounted for this process. The command `actmem` links mounts.c,
 * too.
 */
#ifndef LIB_MACHINE_MOUNTS_H
#define LIB_MACHINE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The strings are valid only until the callback @see of mounts_find() returns. */
struct mount {
	uint64_t device;		/* st_dev of the files on this mount */
	const char *point;		/* mount point */
	const char *type;
	const char *options;		/* options of the file system, such as "rw,size=64G" */
	bool read_only;			/* a flag of this mount, not of its file system */
};

/*
 * Calls @see for each mount, in the order in which they were mounted, until @see returns true.
 * Returns true if @see returned true for a mount. Returns false if it did not, or if the mounts
 * cannot be read.
 */
bool mounts_find(bool (*see)(void *context, const struct mount *mount), void *context);

/* Copies the value of an option such as "huge=". Returns false if the option is not set. */
bool mount_option(const struct mount *mount, const char *option, char *value, size_t size);

/*
 * Returns the name of the in-memory file system that contains @path, "tmpfs" or "ramfs"; NULL if
 * another file system contains @path.
 */
const char *memory_file_system(const char *path);

#endif /* LIB_MACHINE_MOUNTS_H */
