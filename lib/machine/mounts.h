/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the file systems that are mounted for this process. The command links this file, too.
 */
#ifndef LIB_MACHINE_MOUNTS_H
#define LIB_MACHINE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Valid only until the callback @see of mounts_find() returns. */
struct mount {
	uint64_t device;		/* st_dev of its files */
	const char *point;
	const char *type;
	const char *options;		/* of the file system, such as "rw,size=64G" */
	bool read_only;			/* this mount; the file system may be writable elsewhere */
};

/*
 * Calls @see for each mount, in the order in which they were mounted, until @see returns true.
 * Returns true if a call of @see returned true; false if none did, or if the mounts cannot be read.
 */
bool mounts_find(bool (*see)(void *context, const struct mount *mount), void *context);

/* Copies the value of an option such as "huge=". Returns false if the mount lacks the option. */
bool mount_option(const struct mount *mount, const char *option, char *value, size_t size);

/*
 * Returns the name of the in-memory file system that contains @path, "tmpfs" or "ramfs", or else
 * NULL.
 */
const char *memory_file_system(const char *path);

#endif /* LIB_MACHINE_MOUNTS_H */
