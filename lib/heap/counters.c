/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What one opened backend has: what is published, and what threads that use its
 * heaps have done since they published last.
 */
#include <errno.h>

#include "base/base.h"
#include "heap/inside.h"
#include "region/region.h"

/* Under the handles lock. */
static void add_unpublished(struct actmem *am, struct actmem_counters *now)
{
	const struct cache *cache;
	struct actmem_heap *heap;

	for (heap = am->heaps; heap; heap = heap->next) {
		pthread_mutex_lock(&heap->lock);
		for (cache = heap->caches; cache; cache = cache->next) {
			const struct tally *is = &cache->tally, *was = &cache->published;

			uint64_t taken = tally_read(&is->taken) - tally_read(&was->taken);

			now->blocks += taken - (tally_read(&is->given) - tally_read(&was->given));
			now->blocks_total += taken;
			now->block_bytes += tally_read(&is->block_bytes) -
					    tally_read(&was->block_bytes);
		}
		pthread_mutex_unlock(&heap->lock);
	}
}

int actmem_get_counters(struct actmem *am, struct actmem_counters *counters)
{
	const struct counters *published;
	struct actmem_counters now;
	int error;

	if (!am || !counters)
		return fail(EINVAL, "actmem_get_counters: no handle or nowhere to put them");
	error = check_owner(am);
	if (error)
		return error;
	published = am->counters;
	ACTMEM_INIT(&now);
	now.regions = published->regions;
	now.region_bytes = published->region_bytes;
	now.regions_mapped = published->regions_mapped;
	now.heaps = published->heaps;
	now.region_bytes_peak = published->region_bytes_peak;
	now.regions_total = published->regions_total;
	now.fallbacks_total = published->fallbacks_total;
	now.stores = published->stores;
	now.spilled_bytes = published->spilled_bytes;
	handles_lock();
	heap_publish_own(am);
	now.blocks = published->blocks;
	now.block_bytes = published->block_bytes;
	now.block_bytes_peak = published->block_bytes_peak;
	now.blocks_total = published->blocks_total;
	add_unpublished(am, &now);
	handles_unlock();
	return give_struct(counters, &now, sizeof(now), "counters");
}
