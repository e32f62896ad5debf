/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The files of the driver's mounted file systems, which outlive their processes. */
#ifndef ACTMEM_NAMED_FILES_H
#define ACTMEM_NAMED_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct named_file {
	const char *path;
	uint64_t id;			/* of its region */
	time_t changed;			/* the file was made or changed last, by the clock */
};

/*
 * Shows each file that has a region, where this process sees it mounted and may open it,
 * until @see returns true. Whether it did.
 */
bool named_files_find(bool (*see)(void *context, const struct named_file *file),
		      void *context);

#endif
