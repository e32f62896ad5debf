/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The memory of programs whose user has not said which it is to be. */
#ifndef ACTMEM_BEST_MEMORY_H
#define ACTMEM_BEST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"

/*
 * Allows whatever there is, by ACTMEM_ALLOW, where actmem_options_allow_best() does. Whether
 * it did.
 */
bool best_memory_allow(void);

/* Says in a line what a region of that memory got, if there could be better. */
void best_memory_tell(const struct actmem *am, struct actmem_region *region);

/* The same of a region of @length bytes, which it creates and closes. */
void best_memory_try(struct actmem *am, uint64_t length);

#endif
