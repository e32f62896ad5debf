/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Each store has a thread that makes memory and registers it with CUDA before puts need it.
 * Both take long, and the thread of a put must not wait, because it starts the device's work. The thread
 * works during the first forward pass. From then on the memory is there. The thread reports no
 * failure: the put that needs the memory fails with an error message.
 */
#ifndef ACTMEM_XLA_GROW_H
#define ACTMEM_XLA_GROW_H

#include <stdint.h>

#include "actmem_store.h"

struct grow;

/*
 * Serves @store until grow_end(), which comes before its end. @grow_bytes 0: the default.
 * 0, or -errno of pthread_create().
 */
int grow_begin(struct actmem_store *store, uint64_t grow_bytes, struct grow **grow);

/* Both do nothing for NULL. */
void grow_end(struct grow *grow);

/* The store has reserved a block of @bytes; more like it may follow. */
void grow_want(struct grow *grow, uint64_t bytes);

#endif /* ACTMEM_XLA_GROW_H */
