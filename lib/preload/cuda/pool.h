/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Blocks of host memory for CUDA programs, from one heap of registered regions for
 * each device. Thread-safe; of no use in a forked child.
 */
#ifndef LIB_PRELOAD_CUDA_POOL_H
#define LIB_PRELOAD_CUDA_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/cuda/library.h"
#include "preload/settings.h"
#include "preload/say.h"

enum cuda_outcome {
	OUTCOME_OURS,			/* it is done, with the result that is told */
	OUTCOME_DRIVERS,		/* it is for the driver */
	OUTCOME_FAILED,			/* it was ours to do, and words tell why it is not done */
};

struct cuda_failure {
	enum tale tale;
	char words[CUDA_WORDS_MAX];
};

/*
 * A block of @bytes, at a whole page, for the context that is current to this thread.
 * @flags: what cuda_pool_flags() is to tell.
 */
enum cuda_outcome cuda_pool_alloc(const struct cuda_settings *settings, size_t bytes,
				  unsigned int flags, void **block, struct cuda_failure *failure);

/*
 * Waits, as the driver does, for what devices still have to do with the block, and
 * gives it back. DRIVERS: no block begins there. *@result is 0, or CUDA's word for why
 * it could not wait: the block is then as it was.
 */
enum cuda_outcome cuda_pool_free(const struct cuda_settings *settings, void *block,
				 cuda_result *result);

/* The flags of the block that has the address in it. False: there is none. */
bool cuda_pool_flags(const void *address, unsigned int *flags);

/* Whether the context is gone, and all that was registered in it. */
bool cuda_context_is_gone(cuda_result result);

#endif /* LIB_PRELOAD_CUDA_POOL_H */
