/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The stores that contain the blocks: one for each NUMA node that has a GPU in use (places.h). A
 * store is created when it is used for the first time. The stores share one budget and one spill
 * limit (shares.h). Programs on CPUs use the first store.
 *
 * The caller gets a block from memory_reserve(), fills it, and calls memory_commit(). Later the
 * caller calls memory_hold(), reads the block, and calls memory_release(). Several threads can hold
 * a block at the same time. A released block is freed when the last hold ends. memory_drop() frees
 * a block that no thread will read.
 */
#ifndef LIB_XLA_MEMORY_H
#define LIB_XLA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"
#include "xla/key.h"

/*
 * Reserves @bytes, which must not be 0, and stores their address in *@memory. If blocks can spill,
 * waits until memory is free. On failure, @words (@words_size bytes) has the error message, and
 * *@has_store is false if the store could not be created.
 */
int memory_reserve(struct actmem_key key, uint64_t bytes, void **memory, bool *has_store,
		   char *words, size_t words_size);
void memory_commit(struct actmem_key key);

/*
 * Holds a block, and stores its address in *@memory. If the block was spilled, waits until it has
 * been read. On failure, the block stays in the store, and @words has the error message.
 */
int memory_hold(struct actmem_key key, const void **memory, char *words,
		size_t words_size);
void memory_release(struct actmem_key key);

/* Ends a hold, but keeps the block for another memory_hold(). */
void memory_put_back(struct actmem_key key);

void memory_drop(struct actmem_key key);

/*
 * Sets whether blocks that are committed from now on get checksums. memory_hold() verifies the
 * checksums.
 */
void memory_set_checksum(int on);

/*
 * Makes the store of a GPU unless it exists. The store's memory is registered with CUDA for all
 * devices. If a program on the CPU has created a store that is not registered, the call ends that
 * store first. Stores the length of the device's staging ring in *@ring_bytes. On failure, @words
 * has the error message.
 */
int memory_pin(uint32_t device, uint64_t *ring_bytes, char *words, size_t words_size);

/* Returns the budget of all stores together, or 0 if there is no budget or no store. */
uint64_t memory_budget(void);
/* Returns the node of the block's place (places.h), or -1 if the node is not known. */
int memory_node(struct actmem_key key);

/* Sets the function that names blocks in error messages; see struct actmem_store_options. */
void memory_name_blocks(void (*name_block)(struct actmem_key key, char *name, size_t size));

/* Returns true if memory_reserve() and memory_hold() can wait for other threads. */
bool memory_waits(void);

#endif /* LIB_XLA_MEMORY_H */
