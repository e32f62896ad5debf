/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Contents that tell one block from another, and one place in it from another,
 * about as fast as memory can be written and read.
 */
#ifndef ACTMEM_PATTERN_H
#define ACTMEM_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#define PATTERN_ALIGN	64	/* lengths are multiples of it, memory is aligned to it */

/* The seed of the block of that name in that step. */
uint64_t pattern_seed(uint64_t step, uint64_t name);

void pattern_fill(void *memory, uint64_t bytes, uint64_t seed);

struct pattern_fault {
	uint64_t wrong_bytes;		/* in all */
	uint64_t offset;		/* of the first one */
	uint8_t wanted, found;
};

/* False: not all is as it was filled, and *@fault tells what is not. */
bool pattern_verify(const void *memory, uint64_t bytes, uint64_t seed,
		    struct pattern_fault *fault);

#endif
