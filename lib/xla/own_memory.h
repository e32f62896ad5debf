/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory of CUDA's driver, where it does not register regions: told and counted. It is not
 * taken where that is to be an error (ACTMEM_STRICT), or where blocks may spill.
 */
#ifndef ACTMEM_XLA_OWN_MEMORY_H
#define ACTMEM_XLA_OWN_MEMORY_H

#include <stdint.h>

#include "actmem_runtime.h"
#include "xla/actmem_xla.h"

/* Allows it to the runtime that is about to be opened, unless it is not to be. */
void own_memory_allow(struct actmem_runtime_options *options, int spills);

/* Fills in what there is of it. */
void own_memory_count(struct actmem_xla_stats *stats);

/* Adds to the words of a failure to register why it was not taken. */
void own_memory_explain(int spills, char *words, size_t words_size);

#endif /* ACTMEM_XLA_OWN_MEMORY_H */
