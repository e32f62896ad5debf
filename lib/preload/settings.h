/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The settings of the modes, from the environment. The command links this file too.
 */
#ifndef LIB_PRELOAD_SETTINGS_H
#define LIB_PRELOAD_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem.h"

#define KEEP_HALF	UINT64_MAX	/* half of the machine's memory */
#define DECAY_NEVER	UINT64_MAX

struct malloc_settings {
	bool wanted;			/* ACTMEM_MALLOC=1 */
	uint64_t min_bytes;		/* ACTMEM_MALLOC_MIN: blocks that are the preload's */
	uint64_t keep_bytes;		/* ACTMEM_MALLOC_KEEP: freed, and not given back */
	uint64_t decay_ms;		/* ACTMEM_MALLOC_DECAY: until then */
	enum actmem_policy policy;	/* ACTMEM_POLICY; DEFAULT: BIND with nodes */
	struct actmem_nodes nodes;	/* ACTMEM_NODES; none: that of the calling CPU */
};

#define MALLOC_MIN_LEAST	4096ULL

/* The variable that is wrong, what it says, and what it may say. */
struct setting_wrong {
	const char *variable, *text, *choice;
};

/* Without the mode, the others are not read. False: @wrong tells why. */
bool malloc_settings_read(struct malloc_settings *settings, struct setting_wrong *wrong);

/* Whether ACTMEM_CUDA says what it may. */
bool cuda_settings_read(struct setting_wrong *wrong);

#endif /* LIB_PRELOAD_SETTINGS_H */
