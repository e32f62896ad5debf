/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Each store that is registered with CUDA has a thread that allocates and registers memory before
 * actmem_put needs it. Allocating and registering can take seconds. The thread that runs actmem_put
 * must not wait, because the same thread starts the device's work. The store's thread works during
 * the first forward pass; later passes find the memory allocated. The store's thread reports no
 * failure: actmem_put fails with an error message when it needs the memory.
 */
#ifndef LIB_XLA_GROW_H
#define LIB_XLA_GROW_H

#include <stdint.h>

#include "actmem_store.h"

struct grow;

/*
 * Starts the thread for @store. The caller calls grow_end() before it destroys the store.
 * @grow_bytes is the step in which the store grows; 0: the default. Returns 0, -ENOMEM, or the
 * negative errno of pthread_create().
 */
int grow_begin(struct actmem_store *store, uint64_t grow_bytes, struct grow **grow);

/* grow_end() and grow_want() do nothing if @grow is NULL. */
void grow_end(struct grow *grow);

/* Called after the store has reserved a block of @bytes. Requests memory for more such blocks. */
void grow_want(struct grow *grow, uint64_t bytes);

#endif /* LIB_XLA_GROW_H */
