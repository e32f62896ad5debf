/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Test data that differs between blocks, and between offsets in a block. Filling memory with this
 * data takes about as long as writing the memory. Verifying the data takes about as long as reading
 * it.
 */
#ifndef ACTMEM_PATTERN_H
#define ACTMEM_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#define PATTERN_ALIGN	64	/* required alignment of lengths and of memory */

/* Returns the pattern's seed for the block with the number @name in step @step. */
uint64_t pattern_seed(uint64_t step, uint64_t name);

void pattern_fill(void *memory, uint64_t bytes, uint64_t seed);

struct pattern_fault {
	uint64_t wrong_bytes;		/* number of wrong bytes */
	uint64_t offset;		/* offset of the first wrong byte */
	uint8_t wanted, found;
};

/* Returns false if the memory differs from the pattern, and describes the difference in *@fault. */
bool pattern_verify(const void *memory, uint64_t bytes, uint64_t seed,
		    struct pattern_fault *fault);

#endif
