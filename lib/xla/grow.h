/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A thread for each store that has its memory made and registered with CUDA before puts want
 * it: that takes long, and the thread of a put is the one that XLA starts the device's
 * work by. It works in the first forward pass, as puts go on; from then on the memory is
 * there. It tells no failure: the put that needs the memory fails, in words.
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
