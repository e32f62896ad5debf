/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reports once which memory the process got, if no caller chose the memory. Reports it again if a
 * later region is the first one that is not locked.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "config/config.h"
#include "region/regions.h"

void region_report(const struct actmem_region *region)
{
	static const char *const pages[] = {
		[ACTMEM_PAGES_2M] = "2M", [ACTMEM_PAGES_THP] = "thp", [ACTMEM_PAGES_4K] = "4K",
		[ACTMEM_PAGES_1G] = "1G",
	};
	static atomic_uint reported;
	const struct backing *backing = &region->backing;
	bool is_memfd = region->backend->kind == ACTMEM_BACKEND_MEMFD;
	bool is_unlocked = is_memfd && backing->locked_bytes < backing->length;
	unsigned int kinds = is_unlocked ? 3 : 1;

	if (knob_is_on(KNOB_QUIET) || knob_is_on(KNOB_REPORTED) ||
	    !(kinds & ~atomic_fetch_or(&reported, kinds)))
		return;
	/* The driver has one kind of pages, and pins them. Its only fallback is other nodes. */
	fprintf(stderr, "actmem: memory is %s pages of %s%s%s; 'actmem doctor' reports how to get better memory, docs/installing.md says how to install the command and the driver, ACTMEM_STRICT=1 makes this an error, ACTMEM_QUIET=1 omits this line\n",
		pages[backing->pages], region->backend->name,
		is_unlocked ? ", not locked" : "",
		backing->unplaced ? ", on nodes that the kernel chose (mbind is forbidden)" :
		backing->elsewhere || !is_memfd ? ", on other nodes than requested" : "");
}
