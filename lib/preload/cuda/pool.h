/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Blocks of host memory for CUDA programs, from one heap of registered regions for each device.
 * Thread-safe, but not usable in a forked child.
 */
#ifndef LIB_PRELOAD_CUDA_POOL_H
#define LIB_PRELOAD_CUDA_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/cuda/library.h"
#include "preload/settings.h"

enum cuda_outcome {
	OUTCOME_OURS,			/* the preload served the request; the result is set */
	OUTCOME_DRIVERS,		/* the driver must serve the request */
	OUTCOME_FAILED,			/* the preload failed, with an error message */
};

/*
 * Allocates a block of @bytes, aligned to a page, for the thread's current context.
 * cuda_pool_flags() later returns @flags.
 */
enum cuda_outcome cuda_pool_alloc(const struct cuda_settings *settings, size_t bytes,
				  unsigned int flags, void **block, struct cuda_failure *failure);

/*
 * Waits until the devices have finished the work of the current context and of all primary
 * contexts, and then frees the block. Returns OUTCOME_DRIVERS if no block begins at @block.
 * *@result is 0, or CUDA's error if the wait failed. After an error, the block stays allocated.
 */
enum cuda_outcome cuda_pool_free(const struct cuda_settings *settings, void *block,
				 cuda_result *result);

/* Stores the flags of the block that contains the address. Returns false if no block does. */
bool cuda_pool_flags(const void *address, unsigned int *flags);

#endif /* LIB_PRELOAD_CUDA_POOL_H */
