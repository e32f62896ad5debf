/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the random tests of heaps share: which blocks they want, and what is in them.
 */
#ifndef TESTS_HEAP_CONTENT_H
#define TESTS_HEAP_CONTENT_H

#include <string.h>

#include "heap_test.h"
#include "random.h"

#define UNIT		256
#define PAGE		4096

struct live {
	unsigned char *address;
	uint64_t bytes;
	uint64_t content;
	unsigned int heap;
};

/* What activations are like: a few lengths that recur. */
static const uint64_t lengths[] = { 1, 256, 5120, 40000, 81920, 262144, 700000, 2 * MIB };

#define LENGTHS	(sizeof(lengths) / sizeof(lengths[0]))

static inline uint64_t rounded(uint64_t bytes)
{
	return (bytes + UNIT - 1) / UNIT * UNIT;
}

static inline uint64_t word_at(const struct live *block, uint64_t at)
{
	uint64_t state = block->content + at;

	return next_random(&state);
}

/*
 * All of a short block; of a long one the ends, and a word at the start of every
 * page. The last word may overlap others, and is written last.
 */
static inline bool visit(const struct live *block, bool write)
{
	uint64_t step = block->bytes <= PAGE ? 8 : PAGE, at, word;

	for (at = 0; at + 8 <= block->bytes; at += step) {
		if (at + 16 > block->bytes)
			break;
		word = word_at(block, at);
		if (write)
			memcpy(block->address + at, &word, 8);
		else if (memcmp(block->address + at, &word, 8))
			return false;
	}
	if (block->bytes < 8) {
		word = block->content;
		at = 0;
	} else {
		at = block->bytes - 8;
		word = word_at(block, at);
	}
	if (write)
		memcpy(block->address + at, &word, block->bytes - at);
	return write || !memcmp(block->address + at, &word, block->bytes - at);
}

static inline uint64_t some_bytes(uint64_t *random)
{
	unsigned int bits = 4;

	if (!one_in(random, 3))
		return lengths[random_below(random, LENGTHS - 2 * !one_in(random, 16))];
	/* Mostly short, sometimes long. */
	bits += (unsigned int)random_below(random, one_in(random, 64) ? 20 : 14);
	return 1 + random_below(random, 1ULL << bits);
}

static inline uint64_t some_align(uint64_t *random)
{
	return one_in(random, 6) ? 1ULL << random_below(random, 22) : 0;
}

#endif /* TESTS_HEAP_CONTENT_H */
