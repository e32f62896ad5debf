/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <inttypes.h>
#include <stdio.h>

int main(void)
{
	struct actmem_region_options region;
	struct actmem_heap_options options;
	struct actmem_heap_stats stats;
	struct actmem_heap *heap;
	struct actmem *am;
	void *block;

	ACTMEM_INIT(&region);
	region.name = "example";
	ACTMEM_INIT(&options);
	options.grow_bytes = 4 << 20;
	options.limit_bytes = 64 << 20;
	options.region = &region;
	if (actmem_open(&am, NULL) ||
	    actmem_heap_create(am, &options, &heap) ||
	    actmem_heap_alloc(heap, 1 << 20, 0, &block)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	ACTMEM_INIT(&stats);
	if (!actmem_heap_get_stats(heap, &stats))
		printf("%" PRIu64 " bytes of %" PRIu64 "\n", stats.used_bytes,
		       stats.region_bytes);
	actmem_heap_free(heap, block);
	actmem_heap_trim(heap);
	actmem_heap_destroy(heap);
	return actmem_close(am) != 0;
}
