/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The heap that blocks come from: made at the first use from the memory that
 * was attached, else from the environment.
 */
#ifndef ACTMEM_XLA_MEMORY_H
#define ACTMEM_XLA_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/*
 * @bytes, not 0, at *@block. On failure @words, of @words_size bytes, says
 * why and what to do.
 */
int memory_alloc(uint64_t bytes, void **block, char *words, size_t words_size);

void memory_free(void *block);

#endif /* ACTMEM_XLA_MEMORY_H */
