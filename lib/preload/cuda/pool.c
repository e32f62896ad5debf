/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The pools of devices, and their blocks.
 *
 * A pool's regions are registered in the device's primary context, and all contexts can use these
 * regions. If another context is current when a program requests memory, the CUDA driver serves the
 * request, because such memory must be freed when that context is destroyed. A reset of the primary
 * context ends all registrations, just as it frees the driver's own host memory. At the next
 * request, this file gives up the pool, frees the pool's blocks, and opens a new pool.
 *
 * A thread that calls CUDA or libactmem holds no lock of this file except open_lock. While a thread
 * loads a library, it does not hold open_lock either. Otherwise it could deadlock with another
 * thread that holds the loader's lock and runs a constructor that calls this file.
 */
#include <pthread.h>
#include <stdlib.h>

#include "machine/machine.h"
#include "preload/cuda/blocks.h"
#include "preload/cuda/cuda.h"
#include "preload/cuda/open.h"
#include "preload/cuda/pool.h"

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;	/* protects the variables below */
static struct cuda_pool *pools;
static struct cuda_blocks blocks;

static struct cuda_pool *pool_of(cuda_context context, unsigned long long id)
{
	struct cuda_pool *pool;

	pthread_mutex_lock(&lock);
	for (pool = pools; pool && (pool->context != context || pool->context_id != id);)
		pool = pool->next;
	if (pool)
		pool->users++;
	pthread_mutex_unlock(&lock);
	return pool;
}

/* Removes a user of a pool. If the pool was given up, its last user closes it. */
static void leave_pool(struct cuda_pool *pool)
{
	bool is_last;

	pthread_mutex_lock(&lock);
	is_last = !--pool->users && pool->is_lost;
	pthread_mutex_unlock(&lock);
	if (is_last)
		cuda_pool_close(pool);
}

/*
 * Removes a pool from the list and frees its blocks, except those that other threads are freeing.
 * From then on, no thread gets a block of this pool.
 */
static void give_up_pool(struct cuda_pool *pool)
{
	struct cuda_pool **link = &pools;
	struct cuda_block *block;

	pthread_mutex_lock(&lock);
	while (*link && *link != pool)
		link = &(*link)->next;
	if (*link)
		*link = pool->next;
	pool->is_lost = true;
	while ((block = cuda_blocks_of(&blocks, pool))) {
		cuda_blocks_remove(&blocks, block);
		pthread_mutex_unlock(&lock);
		cuda_pool_give(pool, (void *)block->address);
		free(block);
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
}

/*
 * Gives up the earlier pool of the device, if there is one. A device has only one primary context
 * at a time, so the context of the earlier pool has ended.
 */
static void give_up_device_pool(int device)
{
	struct cuda_pool *pool;

	pthread_mutex_lock(&lock);
	for (pool = pools; pool && pool->device != device;)
		pool = pool->next;
	if (pool)
		pool->users++;
	pthread_mutex_unlock(&lock);
	if (!pool)
		return;
	give_up_pool(pool);
	leave_pool(pool);
}

/* Makes @pool the pool of its context, with the caller as a user. Caller holds open_lock. */
static bool begin_pool(struct cuda_pool *pool, const struct cuda_settings *settings,
		       struct cuda_failure *failure)
{
	give_up_device_pool(pool->device);
	if (!cuda_pool_begin(pool, settings, failure))
		return false;
	pool->users = 1;
	pthread_mutex_lock(&lock);
	pool->next = pools;
	pools = pool;
	pthread_mutex_unlock(&lock);
	return true;
}

/* Opens a pool. If several threads do this for one context, all of them use the same pool. */
static enum cuda_outcome open_pool(const struct cuda_settings *settings, cuda_context context,
				   unsigned long long id, struct cuda_pool **result,
				   struct cuda_failure *failure)
{
	struct cuda_pool *pool;
	int device;

	if (cuda.cuCtxGetDevice(&device))
		return OUTCOME_DRIVERS;
	if (!cuda_context_is_primary(context, device)) {
		say_once(TALE_CONTEXT, "host memory of a context that the program made itself (cuCtxCreate) is the CUDA driver's own, and ends with that context; host memory of the primary context comes from regions");
		return OUTCOME_DRIVERS;
	}
	pool = cuda_pool_open(device, failure);
	if (!pool)
		return OUTCOME_FAILED;
	pool->context = context;
	pool->context_id = id;
	pthread_mutex_lock(&open_lock);
	*result = pool_of(context, id);
	if (!*result && begin_pool(pool, settings, failure))
		*result = pool;
	pthread_mutex_unlock(&open_lock);
	if (*result != pool)
		cuda_pool_close(pool);
	return *result ? OUTCOME_OURS : OUTCOME_FAILED;
}

/*
 * Finds or opens the pool for the current context. The caller may use the pool until leave_pool().
 */
static enum cuda_outcome enter_pool(const struct cuda_settings *settings, struct cuda_pool **pool,
				    struct cuda_failure *failure)
{
	cuda_context context = NULL;
	unsigned long long id;

	/* If there is no context, let the driver return the error. */
	if (cuda.cuCtxGetCurrent(&context) || !context ||
	    cuda.cuCtxGetId(context, &id))
		return OUTCOME_DRIVERS;
	*pool = pool_of(context, id);
	return *pool ? OUTCOME_OURS : open_pool(settings, context, id, pool, failure);
}

/*
 * Asks the driver whether an address is registered. Calls the original CUDA function (cuda_driver),
 * not this preload's replacement. Only an invalid address or a lost context means "not registered".
 * All other errors have other causes, such as a GPU kernel that failed.
 */
static bool is_registered(void *address)
{
	cuda_pointer pointer;
	cuda_result result = cuda_driver.cuMemHostGetDevicePointer_v2(&pointer, address, 0);

	return result != CUDA_INVALID_VALUE && !cuda_context_is_gone(result);
}

/*
 * Adds a block to the tree. Fails if the block's region is not registered any more, or if another
 * thread has given up the pool.
 */
static bool record_block(struct cuda_pool *pool, struct cuda_block *block,
			 struct cuda_failure *failure)
{
	bool is_lost = !is_registered((void *)block->address), is_added = false;

	pthread_mutex_lock(&lock);
	is_lost = is_lost || pool->is_lost;
	if (!is_lost)
		is_added = cuda_blocks_add(&blocks, block);
	pthread_mutex_unlock(&lock);
	if (is_lost)
		return cuda_failure_set(failure, TALE_LOST, "the region is not registered any more: the program unregistered the region, or reset the device");
	return is_added || cuda_failure_set(failure, TALE_BLOCK, "no memory for bookkeeping");
}

/*
 * Allocates a block from the pool of the current context. After record_block(), another thread may
 * give up the pool and free @block at any time.
 */
static enum cuda_outcome take_block(const struct cuda_settings *settings, struct cuda_block *block,
				    void **result, struct cuda_failure *failure)
{
	struct cuda_pool *pool;
	void *address;
	enum cuda_outcome outcome = enter_pool(settings, &pool, failure);

	if (outcome != OUTCOME_OURS)
		return outcome;
	outcome = OUTCOME_FAILED;
	if (cuda_pool_take(pool, block->bytes, &address, failure)) {
		block->address = address;
		block->owner = pool;
		if (record_block(pool, block, failure)) {
			outcome = OUTCOME_OURS;
			*result = address;
		} else {
			cuda_pool_give(pool, address);
		}
	}
	leave_pool(pool);
	return outcome;
}

enum cuda_outcome cuda_pool_alloc(const struct cuda_settings *settings, size_t bytes,
				  unsigned int flags, void **address, struct cuda_failure *failure)
{
	struct cuda_block *block;
	enum cuda_outcome outcome;

	if (bytes > SIZE_MAX / 2)
		return OUTCOME_DRIVERS;
	if (!cuda_library_load(failure))
		return OUTCOME_FAILED;
	block = malloc(sizeof(*block));
	if (!block) {
		cuda_failure_set(failure, TALE_BLOCK, "no memory for bookkeeping");
		return OUTCOME_FAILED;
	}
	*block = (struct cuda_block){
		.bytes = (bytes + BASE_PAGE_BYTES - 1) & ~(BASE_PAGE_BYTES - 1),
		.flags = flags,
	};
	outcome = take_block(settings, block, address, failure);
	if (outcome != OUTCOME_OURS)
		free(block);
	return outcome;
}

/* Finds the block that starts at @address, sets its flag is_ending, and adds a user to its pool. */
static struct cuda_block *claim_block(const void *address)
{
	struct cuda_block *block;
	struct cuda_pool *pool;

	pthread_mutex_lock(&lock);
	block = cuda_blocks_find(&blocks, address, 1);
	if (block && (block->address != address || block->is_ending))
		block = NULL;
	if (block) {
		block->is_ending = true;
		pool = block->owner;
		pool->users++;
	}
	pthread_mutex_unlock(&lock);
	return block;
}

static cuda_result synchronize_in(cuda_context context)
{
	cuda_context popped;
	cuda_result result = cuda.cuCtxPushCurrent_v2(context);

	if (result)
		return result;
	result = cuda.cuCtxSynchronize();
	cuda.cuCtxPopCurrent_v2(&popped);
	return result;
}

/* Waits for the primary context of a device, if it has one. */
static cuda_result synchronize_device(int ordinal, cuda_context current)
{
	cuda_context primary;
	cuda_result result;
	unsigned int flags;
	int device, active;

	result = cuda.cuDeviceGet(&device, ordinal);
	if (!result)
		result = cuda.cuDevicePrimaryCtxGetState(device, &flags, &active);
	if (result || !active)
		return result;
	result = cuda.cuDevicePrimaryCtxRetain(&primary, device);
	if (result)
		return result;
	if (primary != current)
		result = synchronize_in(primary);
	cuda.cuDevicePrimaryCtxRelease_v2(device);
	return result;
}

/*
 * Waits for the thread's current context, and for the primary contexts of all devices, because each
 * of these contexts can access the block. Does not wait for other contexts that the program created
 * itself: the preload does not know them.
 */
static cuda_result synchronize_all(void)
{
	cuda_context current = NULL;
	cuda_result result = cuda.cuCtxGetCurrent(&current);
	int count = 0, ordinal;

	if (!result && current)
		result = cuda.cuCtxSynchronize();
	if (!result || cuda_context_is_gone(result))
		result = cuda.cuDeviceGetCount(&count);
	for (ordinal = 0; ordinal < count && (!result || cuda_context_is_gone(result)); ordinal++)
		result = synchronize_device(ordinal, current);
	return cuda_context_is_gone(result) ? CUDA_OK : result;
}

static cuda_result publish_and_synchronize(const struct cuda_pool *pool, uint64_t bytes)
{
	struct actmem_device_wait *wait =
		cuda_library.actmem_device_wait_begin(pool->am, bytes,
						      "GPU: all of its streams, as host memory is freed");
	cuda_result result = synchronize_all();

	cuda_library.actmem_device_wait_end(pool->am, wait);
	return result;
}

enum cuda_outcome cuda_pool_free(const struct cuda_settings *settings, void *address,
				 cuda_result *result)
{
	struct cuda_block *block = claim_block(address);
	struct cuda_pool *pool;

	if (!block)
		return OUTCOME_DRIVERS;
	pool = block->owner;
	/* Wait for the GPU: an unfinished copy could still access the memory after its reuse. */
	*result = publish_and_synchronize(pool, block->bytes);
	pthread_mutex_lock(&lock);
	if (pool->is_lost)
		*result = CUDA_OK;
	if (*result)
		block->is_ending = false;
	else
		cuda_blocks_remove(&blocks, block);
	pthread_mutex_unlock(&lock);
	if (!*result) {
		cuda_pool_give(pool, address);
		cuda_pool_trim(pool, settings->keep_bytes);
		free(block);
	}
	leave_pool(pool);
	return OUTCOME_OURS;
}

bool cuda_pool_flags(const void *address, unsigned int *flags)
{
	const struct cuda_block *block;

	pthread_mutex_lock(&lock);
	block = cuda_blocks_find(&blocks, address, 1);
	if (block)
		*flags = block->flags;
	pthread_mutex_unlock(&lock);
	return block;
}
