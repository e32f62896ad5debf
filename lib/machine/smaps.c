/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Counts the pages in a range of this process's memory, with /proc/self/smaps.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "machine/smaps.h"

int smaps_count(const void *address, uint64_t length, uint64_t *mapped, uint64_t *huge)
{
	uintptr_t begin = (uintptr_t)address, end = begin + length;
	unsigned long first, last, kib;
	bool within = false;
	char line[4096];
	FILE *file = fopen("/proc/self/smaps", "re");

	if (!file)
		return fail(errno, "cannot verify huge pages (/proc/self/smaps: %s)",
			    strerror(errno));
	*mapped = 0;
	*huge = 0;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
			within = first >= begin && first < end;
		else if (within && sscanf(line, "Rss: %lu kB", &kib) == 1)
			*mapped += kib * 1024ULL;
		else if (within && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
			*huge += kib * 1024ULL;
	}
	fclose(file);
	return 0;
}
