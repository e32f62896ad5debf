/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Chooses the memory of programs whose user did not choose any. */
#ifndef ACTMEM_BEST_MEMORY_H
#define ACTMEM_BEST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"

/*
 * Sets ACTMEM_ALLOW to "any" if the environment chooses no memory, as actmem_options_allow_best()
 * decides. Returns true if it set the variable.
 */
bool best_memory_allow(void);

/* Prints in one line which memory a region got, if better memory is possible. */
void best_memory_tell(const struct actmem *am, struct actmem_region *region);

/* Creates a region of @length bytes, calls best_memory_tell() for it, and closes it. */
void best_memory_try(struct actmem *am, uint64_t length);

#endif
