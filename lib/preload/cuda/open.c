/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Opens and closes the pool of a device.
 *
 * Each pool has its own handle of libactmem. If the environment sets a name, the files of the pool
 * of device 0 are NAME.cuda0.0, NAME.cuda0.1 and so on. Other users of this name in the process,
 * such as the Python module, use files with other names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "preload/cuda/kept.h"
#include "preload/cuda/open.h"
#include "preload/say.h"

/* The default of a runtime's chunk_bytes. A block cannot be longer. */
#define BLOCK_BYTES_MOST	(64ULL << 30)

bool cuda_context_is_primary(cuda_context context, int device)
{
	cuda_context primary = NULL;
	unsigned int flags;
	int active = 0;

	/* Do not retain an inactive primary context: the driver would create it. */
	if (cuda.cuDevicePrimaryCtxGetState(device, &flags, &active) || !active ||
	    cuda.cuDevicePrimaryCtxRetain(&primary, device))
		return false;
	cuda.cuDevicePrimaryCtxRelease_v2(device);
	return primary == context;
}

static int ordinal_of(int device)
{
	int count = 0, other, ordinal;

	if (cuda.cuDeviceGetCount(&count))
		return -1;
	for (ordinal = 0; ordinal < count; ordinal++)
		if (!cuda.cuDeviceGet(&other, ordinal) && other == device)
			return ordinal;
	return -1;
}

static int open_pool_handle(struct cuda_pool *pool)
{
	struct actmem_options options;
	char *name = NULL;
	int error;

	ACTMEM_INIT(&options);
	error = cuda_library.actmem_options_from_variables(cuda_variables(), &options);
	if (error)
		return error;
	if (options.heap_name &&
	    asprintf(&name, "%s.cuda%d", options.heap_name, pool->ordinal) < 0)
		return -1;
	options.heap_name = name;
	pool->may_be_anywhere = nodes_empty(&options.nodes) &&
				options.policy != ACTMEM_PLACE_INTERLEAVE;
	error = cuda_library.actmem_open(&pool->am, &options);
	free(name);
	return error;
}

static int open_pool_runtime(struct cuda_pool *pool)
{
	struct actmem_runtime_options options;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_CUDA;
	options.device = pool->ordinal;
	return cuda_library.actmem_runtime_open(pool->am, &options, &pool->runtime);
}

/*
 * Creates the heap. The heap's regions are on the device's socket, on the nearest node first,
 * unless the environment names nodes or selects interleaving.
 */
static int open_pool_heap(struct cuda_pool *pool, const struct cuda_settings *settings)
{
	struct actmem_region_options region;
	struct actmem_heap_options options;
	char label[ACTMEM_NAME_MAX];
	int error = 0;

	ACTMEM_INIT(&options);
	ACTMEM_INIT(&region);
	options.region = &region;
	options.grow_bytes = settings->grow_bytes;
	options.limit_bytes = settings->limit_bytes;
	snprintf(label, sizeof(label), "cuda%d", pool->ordinal);
	region.name = label;
	region.flags = ACTMEM_REGION_NEAR;
	if (pool->may_be_anywhere)
		error = cuda_library.actmem_runtime_nodes(pool->runtime, &region.nodes);
	if (!error)
		error = cuda_library.actmem_heap_create(pool->am, &options, &pool->heap);
	if (!error)
		error = cuda_library.actmem_heap_register(pool->heap, pool->runtime,
							  ACTMEM_REGISTER_DEVICEMAP);
	return error;
}

struct cuda_pool *cuda_pool_open(int device, struct cuda_failure *failure)
{
	struct cuda_pool *pool = calloc(1, sizeof(*pool));
	int ordinal = ordinal_of(device), error;

	if (!pool || ordinal < 0) {
		cuda_failure_set(failure, TALE_POOL, pool ? "CUDA does not list the device of the context" :
				 "no memory for a pool");
		free(pool);
		return NULL;
	}
	pool->device = device;
	pool->ordinal = ordinal;
	cuda_library_enter();
	error = open_pool_handle(pool);
	if (!error)
		error = open_pool_runtime(pool);
	if (error)
		cuda_failure_set_last(failure, TALE_POOL);
	cuda_library_leave();
	if (!error)
		return pool;
	cuda_pool_close(pool);
	return NULL;
}

bool cuda_pool_begin(struct cuda_pool *pool, const struct cuda_settings *settings,
		     struct cuda_failure *failure)
{
	int error;

	cuda_library_enter();
	error = open_pool_heap(pool, settings);
	if (error)
		cuda_failure_set_last(failure, TALE_POOL);
	cuda_library_leave();
	if (!error && settings->is_verbose)
		say("host memory of %s and more comes from regions (%s; %s)",
		    SAY_BYTES(settings->min_bytes),
		    cuda_library.actmem_runtime_describe(pool->runtime),
		    cuda_library.actmem_describe(pool->am));
	return !error;
}

void cuda_pool_close(struct cuda_pool *pool)
{
	cuda_library_enter();
	if (pool->heap)
		cuda_library.actmem_heap_destroy(pool->heap);
	if (pool->runtime)
		cuda_library.actmem_runtime_close(pool->runtime);
	if (pool->am)
		cuda_library.actmem_close(pool->am);
	cuda_library_leave();
	free(pool);
}

bool cuda_pool_take(struct cuda_pool *pool, size_t bytes, void **block,
		    struct cuda_failure *failure)
{
	int error;

	if (bytes > BLOCK_BYTES_MOST)
		return cuda_failure_set(failure, TALE_BLOCK, "a block can have at most %s, which is the most that CUDA registers in one call; the program must request smaller blocks",
					SAY_BYTES(BLOCK_BYTES_MOST));
	cuda_library_enter();
	error = cuda_library.actmem_heap_alloc(pool->heap, bytes, BASE_PAGE_BYTES, block);
	if (error)
		cuda_failure_set_last(failure, TALE_BLOCK);
	cuda_library_leave();
	return !error;
}

void cuda_pool_give(struct cuda_pool *pool, void *block)
{
	cuda_library_enter();
	cuda_library.actmem_heap_free(pool->heap, block);
	cuda_library_leave();
}

void cuda_pool_trim(struct cuda_pool *pool, uint64_t keep_bytes)
{
	struct actmem_heap_stats stats;

	ACTMEM_INIT(&stats);
	cuda_library_enter();
	if (!cuda_library.actmem_heap_get_stats(pool->heap, &stats) &&
	    stats.region_bytes - stats.used_bytes > keep_bytes)
		cuda_library.actmem_heap_trim_to(pool->heap, keep_bytes);
	cuda_library_leave();
}
