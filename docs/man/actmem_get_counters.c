/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <inttypes.h>
#include <stdio.h>

int main(void)
{
	struct actmem_counters counters;
	struct actmem_heap *heap;
	struct actmem *am;
	void *block;

	if (actmem_open(&am, NULL) || actmem_heap_create(am, NULL, &heap) ||
	    actmem_heap_alloc(heap, 1 << 20, 0, &block)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	ACTMEM_INIT(&counters);
	if (!actmem_get_counters(am, &counters))
		printf("%" PRIu64 " regions, %" PRIu64 " blocks\n", counters.regions,
		       counters.blocks);
	actmem_heap_free(heap, block);
	actmem_heap_destroy(heap);
	return actmem_close(am) != 0;
}
