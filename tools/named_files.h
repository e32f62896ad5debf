/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The files of the driver's mounted file systems. Such files outlive the processes that use them.
 */
#ifndef ACTMEM_NAMED_FILES_H
#define ACTMEM_NAMED_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct named_file {
	const char *path;
	uint64_t id;			/* id of the file's region */
	time_t changed;			/* when the file was created or last changed */
};

/*
 * Searches the mounts that this process sees, and calls @see for each file that has a region and
 * that this process may open. Ends the search and returns true as soon as @see returns true.
 */
bool named_files_find(bool (*see)(void *context, const struct named_file *file),
		      void *context);

#endif
