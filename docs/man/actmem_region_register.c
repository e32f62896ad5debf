/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem_runtime.h>
#include <stdio.h>

int main(void)
{
	struct actmem_runtime *runtime;
	struct actmem_heap *heap;
	struct actmem *am;
	void *block;

	if (actmem_open(&am, NULL) ||
	    actmem_runtime_open(am, NULL, &runtime) ||
	    actmem_heap_create(am, NULL, &heap) ||
	    actmem_heap_register(heap, runtime, 0) ||
	    actmem_heap_alloc(heap, 1 << 20, 0, &block)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	/* Copies between block and the device go at full speed here. */
	puts(actmem_runtime_describe(runtime));
	actmem_heap_free(heap, block);
	actmem_heap_destroy(heap);
	actmem_runtime_close(runtime);
	return actmem_close(am) != 0;
}
