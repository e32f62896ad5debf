/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * File systems as they are mounted for this process. The command links this file
 * too.
 */
#ifndef LIB_MACHINE_MOUNTS_H
#define LIB_MACHINE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Valid during the call that hands it over. */
struct mount {
	uint64_t device;		/* st_dev of its files */
	const char *point;
	const char *type;
	const char *options;		/* of the file system, as "rw,size=64G" */
	bool read_only;			/* there, if not everywhere */
};

/*
 * Shows each mount to @see, in the order in which they were made, until that
 * returns true. Whether it did; false also if the kernel does not tell.
 */
bool mounts_find(bool (*see)(void *context, const struct mount *mount), void *context);

/* The value of an option, as of "huge="; false if it is not there. */
bool mount_option(const struct mount *mount, const char *option, char *value, size_t size);

/* Returns the type of the file system of @path if its files are memory, as "tmpfs"; else NULL. */
const char *memory_file_system(const char *path);

#endif /* LIB_MACHINE_MOUNTS_H */
