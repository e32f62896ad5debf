/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory that the CUDA driver allocates because it refuses to register regions. The library reports
 * such memory on stderr and counts it. With ACTMEM_STRICT, or if blocks can spill, the library does
 * not use such memory: the failure to register is an error.
 */
#ifndef LIB_XLA_OWN_MEMORY_H
#define LIB_XLA_OWN_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_runtime.h"
#include "xla/actmem_xla.h"

/*
 * Sets @options so that the runtime may use memory that the CUDA driver allocates. With
 * ACTMEM_STRICT, or if @spills is true, sets @options so that the runtime must not use such memory.
 */
void own_memory_allow(struct actmem_runtime_options *options, bool spills);

/* Fills in own_bytes and own_bytes_total. */
void own_memory_count(struct actmem_xla_stats *stats);

/*
 * If @words says that a registration failed, appends why the CUDA driver's own memory was not used
 * instead.
 */
void own_memory_explain(bool spills, char *words, size_t words_size);

#endif /* LIB_XLA_OWN_MEMORY_H */
