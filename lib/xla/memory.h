/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The stores that blocks live in, made at the first use (attached.h): one for each node that
 * GPUs in use are at (places.h). They share one budget and one spill limit (shares.h).
 * Programs on CPUs use the first store.
 *
 * A block goes from memory_reserve() (for the caller to fill) by memory_commit() to
 * memory_hold() (for the caller to read) and memory_release(); a block that nobody
 * wants any more ends by memory_drop(). For one key, one thread at a time calls these.
 */
#ifndef ACTMEM_XLA_MEMORY_H
#define ACTMEM_XLA_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"
#include "xla/key.h"

/*
 * @bytes, not 0, at *@block. Waits for room where blocks are spilled. On failure
 * @words, of @words_size bytes, says why and what to do, and *@has_store whether there
 * is a store at all.
 */
int memory_reserve(struct actmem_key key, uint64_t bytes, void **block, int *has_store,
		   char *words, size_t words_size);
void memory_commit(struct actmem_key key);

/* Waits where the block has been spilled. On failure it stays, and @words say why. */
int memory_hold(struct actmem_key key, const void **block, char *words,
		size_t words_size);
void memory_release(struct actmem_key key);

/* Called instead of the release: keeps the block, for another hold. */
void memory_put_back(struct actmem_key key);

void memory_drop(struct actmem_key key);

/*
 * Makes the store of a GPU, whose memory is registered with CUDA for all devices. If programs
 * on CPUs have made a store that is not registered, that one ends first. *@ring_bytes is how
 * much memory of the device to stage in. On failure @words say why.
 */
int memory_pin(uint32_t device, uint64_t *ring_bytes, char *words, size_t words_size);

/* Names blocks for error messages by @name_block, of struct actmem_store_options. */
void memory_name_blocks(void (*name_block)(struct actmem_key key, char *name, size_t size));

/* Whether memory_reserve() and memory_hold() may wait for others. */
int memory_waits(void);

#endif /* ACTMEM_XLA_MEMORY_H */
