/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The pool of one device: a heap of libactmem with regions that are registered with that device.
 * pool.c decides how long a pool is used.
 */
#ifndef LIB_PRELOAD_CUDA_OPEN_H
#define LIB_PRELOAD_CUDA_OPEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/cuda/library.h"
#include "preload/settings.h"

struct cuda_pool {
	struct cuda_pool *next;		/* pool.c's lock protects next, users and is_lost */
	unsigned int users;		/* calls that use the pool now */
	bool is_lost;			/* pool.c gave up the pool: no new blocks */
	int device, ordinal;
	bool may_be_anywhere;		/* the environment sets neither nodes nor interleaving */
	cuda_context context;		/* the device's primary context */
	unsigned long long context_id;	/* ID of the context; a device reset changes the ID */
	struct actmem *am;
	struct actmem_runtime *runtime;
	struct actmem_heap *heap;
};

/*
 * Returns true if @context is the device's primary context, which all libraries of a process share.
 */
bool cuda_context_is_primary(cuda_context context, int device);

/*
 * Opens a pool, but does not create its heap. The caller must hold no lock, because the function
 * calls the loader. Returns NULL on failure.
 */
struct cuda_pool *cuda_pool_open(int device, struct cuda_failure *failure);

/* Creates the pool's heap. After a failure, the caller can only close the pool. */
bool cuda_pool_begin(struct cuda_pool *pool, const struct cuda_settings *settings,
		     struct cuda_failure *failure);

/* Closes a pool whose blocks are all free. */
void cuda_pool_close(struct cuda_pool *pool);

/* Allocates a block of @bytes, which must be a multiple of the page size. */
bool cuda_pool_take(struct cuda_pool *pool, size_t bytes, void **block,
		    struct cuda_failure *failure);

/* Frees a block. */
void cuda_pool_give(struct cuda_pool *pool, void *block);

/* Closes free regions until at most @keep_bytes of the pool are free. */
void cuda_pool_trim(struct cuda_pool *pool, uint64_t keep_bytes);

#endif /* LIB_PRELOAD_CUDA_OPEN_H */
