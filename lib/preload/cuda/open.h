/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * One device's pool: a heap of libactmem's whose regions are registered with that
 * device. Whether it is still to be used is for pool.c to know.
 */
#ifndef LIB_PRELOAD_CUDA_OPEN_H
#define LIB_PRELOAD_CUDA_OPEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/cuda/library.h"
#include "preload/settings.h"

struct cuda_pool {
	struct cuda_pool *next;		/* these three under the lock of pool.c */
	unsigned int users;		/* calls that are at work in it */
	bool lost;			/* nobody takes blocks any more */
	int device, ordinal;
	bool may_be_anywhere;		/* the environment names no nodes */
	cuda_context context;		/* the device's primary one, */
	unsigned long long context_id;	/* which has another after a reset */
	struct actmem *am;
	struct actmem_runtime *runtime;
	struct actmem_heap *heap;
};

/* Whether a context is the primary one of the device, which all libraries share. */
bool cuda_context_is_primary(cuda_context context, int device);

/*
 * Opens a pool without a heap. It calls the loader, so that no lock may be held. NULL:
 * @words tell why not.
 */
struct cuda_pool *cuda_pool_open(int device, char words[CUDA_WORDS_MAX]);

/* Makes its heap. False: @words tell why not, and the pool is only to be closed. */
bool cuda_pool_begin(struct cuda_pool *pool, const struct cuda_settings *settings,
		     char words[CUDA_WORDS_MAX]);

/* Closes a pool that has no blocks out. */
void cuda_pool_close(struct cuda_pool *pool);

/* @bytes: whole pages. False: @words tell why not. */
bool cuda_pool_take(struct cuda_pool *pool, size_t bytes, void **block,
		    char words[CUDA_WORDS_MAX]);
void cuda_pool_give(struct cuda_pool *pool, void *block);

/* Gives regions that are free back, until no more than @keep_bytes of it are. */
void cuda_pool_trim(struct cuda_pool *pool, uint64_t keep_bytes);

#endif /* LIB_PRELOAD_CUDA_OPEN_H */
