/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The settings of the CUDA mode, from the environment. The command links this file too.
 */
#ifndef LIB_PRELOAD_CUDA_SETTINGS_H
#define LIB_PRELOAD_CUDA_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/settings.h"

struct cuda_settings {
	uint64_t min_bytes;		/* ACTMEM_CUDA_MIN: requests that are served */
	uint64_t keep_bytes;		/* ACTMEM_CUDA_KEEP: freed, and not given back */
	uint64_t grow_bytes;		/* ACTMEM_HEAP_GROW: by which each heap grows */
	uint64_t limit_bytes;		/* ACTMEM_HEAP_LIMIT: of each heap; 0: none */
	bool strict;			/* ACTMEM_STRICT: what fails is an error */
	bool verbose;			/* ACTMEM_VERBOSE: successes are told too */
};

/*
 * False: @wrong tells why. @settings->strict is as it should be then too, unless that is
 * the wrong one: it is false.
 */
bool cuda_memory_settings_read(struct cuda_settings *settings, struct setting_wrong *wrong);

#endif /* LIB_PRELOAD_CUDA_SETTINGS_H */
