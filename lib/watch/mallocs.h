/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The counters of malloc mode (`actmem run --malloc`), in which the preloaded library provides the
 * program's large aligned blocks. A process publishes these counters when it allocates its first
 * large block.
 */
#ifndef LIB_WATCH_MALLOCS_H
#define LIB_WATCH_MALLOCS_H

#include <stdatomic.h>

#include "watch/publish.h"

static const struct published_kind published_malloc = {
	.label = "actmem-malloc", .magic = 0x6d616c6c6f633031ULL, .version = 1, .bytes = 4096,
};

/* Each counter is correct by itself, but two counters can be from different moments. */
struct malloc_counters {
	struct published_start start;
	_Atomic uint64_t blocks;
	_Atomic uint64_t block_bytes;
	_Atomic uint64_t pooled_bytes;	/* upper bound of free bytes not returned to the kernel */
	_Atomic uint64_t mapped_bytes;	/* bytes of mapped address space */
	_Atomic uint64_t blocks_total;
	_Atomic uint64_t refused_total;	/* requests for large blocks, passed to the next malloc() */
};

#endif /* LIB_WATCH_MALLOCS_H */
