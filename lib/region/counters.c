/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Returns the counters of a handle. The process also publishes these counters.
 */
#include <errno.h>

#include "base/base.h"
#include "region/context.h"
#include "watch/watch.h"

int actmem_get_counters(struct actmem *am, struct actmem_counters *counters)
{
	const struct counters *published;
	struct actmem_counters now;
	int error;

	if (!am || !counters)
		return fail(EINVAL, "actmem_get_counters: am or counters is NULL");
	error = check_owner(am);
	if (error)
		return error;
	published = am->counters;
	ACTMEM_INIT(&now);
	now.regions = published->regions;
	now.region_bytes = published->region_bytes;
	now.regions_mapped = published->regions_mapped;
	now.heaps = published->heaps;
	now.blocks = published->blocks;
	now.block_bytes = published->block_bytes;
	now.block_bytes_peak = published->block_bytes_peak;
	now.region_bytes_peak = published->region_bytes_peak;
	now.regions_total = published->regions_total;
	now.blocks_total = published->blocks_total;
	now.fallbacks_total = published->fallbacks_total;
	now.stores = published->stores;
	now.spilled_bytes = published->spilled_bytes;
	return give_struct(counters, &now, sizeof(now), "counters");
}
