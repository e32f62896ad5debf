/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The settings of malloc mode and of CUDA mode, from the environment. The command `actmem` links
 * settings.c, too.
 */
#ifndef LIB_PRELOAD_SETTINGS_H
#define LIB_PRELOAD_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem.h"
#include "config/config.h"

#define DECAY_NEVER	UINT64_MAX

struct malloc_settings {
	bool is_wanted;			/* ACTMEM_MALLOC=1 */
	uint64_t min_bytes;		/* ACTMEM_MALLOC_MIN: length of the pool's shortest block */
	uint64_t decay_ms;		/* ACTMEM_MALLOC_DECAY: how long freed memory is kept */
	enum actmem_policy policy;	/* ACTMEM_POLICY; DEFAULT: BIND if nodes are set */
	struct actmem_nodes nodes;	/* ACTMEM_NODES; if empty: the node of the caller's CPU */
};

struct cuda_settings {
	uint64_t min_bytes;		/* ACTMEM_CUDA_MIN: shorter requests are passed to CUDA */
	uint64_t keep_bytes;		/* ACTMEM_CUDA_KEEP: bytes of freed memory to keep */
	uint64_t grow_bytes;		/* ACTMEM_HEAP_GROW: length of each region */
	uint64_t limit_bytes;		/* ACTMEM_HEAP_LIMIT: limit of each heap; 0: no limit */
	bool is_strict;			/* ACTMEM_STRICT: fail requests that get no region */
	bool is_verbose;		/* ACTMEM_VERBOSE: also print lines about successes */
};

/* Reads the settings. If malloc mode is off, sets only is_wanted. */
void malloc_settings_read(struct malloc_settings *settings, struct reader *reader);

void cuda_settings_read(struct cuda_settings *settings, struct reader *reader);

#endif /* LIB_PRELOAD_SETTINGS_H */
