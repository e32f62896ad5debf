/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Registers a heap's regions with a runtime when they are created. */
#include <errno.h>

#include "base/base.h"
#include "heap/inside.h"
#include "region/region.h"
#include "runtime/runtime.h"

/*
 * Makes new regions prefer the nodes nearest to @node, if the heap is bound to nodes that include
 * @node.
 */
static void set_home(struct actmem_heap *heap, int node)
{
	struct region_request *request = &heap->request;

	if (request->policy != ACTMEM_PLACE_BIND || node < 0 ||
	    !node_is_set(&request->nodes, (unsigned int)node))
		return;
	request->has_home = true;
	request->home = (unsigned int)node;
}

int actmem_heap_register(struct actmem_heap *heap, struct actmem_runtime *runtime, uint32_t flags)
{
	int error = runtime_check(runtime, "actmem_heap_register");

	if (error)
		return error;
	if (!heap || !runtime_is_of(runtime, heap->am))
		return fail(EINVAL, heap ? "the heap and the runtime come from different calls of actmem_open()" :
			    "actmem_heap_register: no heap");
	if (flags & ~ACTMEM_REGISTER_ALL)
		return fail(EINVAL, "register flags 0x%x are unknown",
			    flags & ~ACTMEM_REGISTER_ALL);
	heap_lock_growth(heap);
	pthread_mutex_lock(&heap->lock);
	if (heap->runtime) {
		error = fail(EEXIST, "the heap's regions are already registered (%s)",
			     actmem_runtime_describe(heap->runtime));
	} else if (heap->regions) {
		error = fail(EBUSY, "the heap has %llu regions that are not registered; register the heap before its first block",
			     (unsigned long long)heap->region_count);
	} else {
		heap->runtime = runtime;
		heap->chunk_bytes = runtime_chunk_bytes(runtime);
		heap->register_flags = flags;
		set_home(heap, runtime_node(runtime));
	}
	pthread_mutex_unlock(&heap->lock);
	heap_unlock_growth(heap);
	if (error)
		return error;
	runtime_add_heap(runtime);
	return 0;
}

void heap_end_runtime(struct actmem_heap *heap)
{
	if (heap->runtime)
		runtime_drop_heap(heap->runtime);
}

int heap_check_registers(const struct actmem_heap *heap)
{
	return heap->runtime ? runtime_check_registers(heap->runtime) : 0;
}

int heap_register_region(struct actmem_heap *heap, struct heap_region *its, uint64_t home)
{
	if (!heap->runtime)
		return 0;
	return region_register_in(its->region, heap->runtime, heap->register_flags,
				  &its->chunk_bytes, round_up(home, HUGE_PAGE_BYTES));
}

int heap_own_region(struct actmem_heap *heap, uint64_t length, const char *why,
		    struct actmem_region **region)
{
	if (!heap->runtime || heap->am->heap_names.path)
		return -EOPNOTSUPP;
	return runtime_own_region(heap->runtime, length, heap->register_flags, why, region);
}

bool heap_unregister_region(struct actmem_heap *heap, struct actmem_region *region)
{
	int error = heap->runtime ? actmem_region_unregister(region) : 0;

	if (!error || error == -ENOENT)
		return true;
	registration_abandon(region);
	return false;
}
