// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Word n of a block is the block's seed plus n times an odd number, modulo 2^64. So no two words of
 * a block are the same. The code handles eight words at a time. The compiler divides the eight
 * words into vectors of the length that the target CPU supports.
 */
#include <string.h>
#include "pattern.h"

#define STEP	0x9e3779b97f4a7c15ULL
#define LANES	8
#define FIRST(seed)	{ (seed), (seed) + STEP, (seed) + 2 * STEP, (seed) + 3 * STEP,	\
			  (seed) + 4 * STEP, (seed) + 5 * STEP, (seed) + 6 * STEP,	\
			  (seed) + 7 * STEP }

typedef uint64_t words __attribute__((vector_size(LANES * sizeof(uint64_t))));

/* Maps numbers that differ in few bits to numbers that differ in many bits (splitmix64). */
static uint64_t mix_bits(uint64_t number)
{
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ULL;
	number = (number ^ number >> 27) * 0x94d049bb133111ebULL;
	return number ^ number >> 31;
}

uint64_t pattern_seed(uint64_t step, uint64_t name)
{
	return mix_bits(mix_bits(step + 1) + name);
}

void pattern_fill(void *memory, uint64_t bytes, uint64_t seed)
{
	words *at = memory, *end = at + bytes / sizeof(words), word = FIRST(seed);

	for (; at < end; at++, word += LANES * STEP)
		*at = word;
}

static void find_faults(const unsigned char *memory, uint64_t bytes, uint64_t seed,
			struct pattern_fault *fault)
{
	unsigned char wanted[sizeof(uint64_t)];
	uint64_t at, number;
	unsigned int i;

	for (at = 0; at < bytes; at += sizeof(number)) {
		number = seed + at / sizeof(number) * STEP;
		memcpy(wanted, &number, sizeof(number));
		for (i = 0; i < sizeof(number); i++) {
			if (memory[at + i] == wanted[i])
				continue;
			if (!fault->wrong_bytes++) {
				fault->offset = at + i;
				fault->wanted = wanted[i];
				fault->found = memory[at + i];
			}
		}
	}
}

bool pattern_verify(const void *memory, uint64_t bytes, uint64_t seed,
		    struct pattern_fault *fault)
{
	const words *at = memory, *end = at + bytes / sizeof(words);
	words word = FIRST(seed), differs = { 0 };
	uint64_t any = 0;
	unsigned int i;

	for (; at < end; at++, word += LANES * STEP)
		differs |= *at ^ word;
	for (i = 0; i < LANES; i++)
		any |= differs[i];
	memset(fault, 0, sizeof(*fault));
	if (any)
		find_faults(memory, bytes, seed, fault);
	return !any;
}
