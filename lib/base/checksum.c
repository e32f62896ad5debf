/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A fast checksum of memory that should be the same later.
 */
#include <string.h>

#include "base/checksum.h"

uint64_t checksum(const void *from, uint64_t bytes)
{
	/* Four chains of an odd multiplier: each word's change changes the sum. */
	static const uint64_t multiplier = UINT64_C(0x9E3779B97F4A7C15);
	uint64_t chain[4] = { 1, 2, 3, 4 }, word;
	const unsigned char *at = from;
	unsigned int i;

	for (; bytes >= sizeof(chain); bytes -= sizeof(chain)) {
		for (i = 0; i < 4; i++) {
			memcpy(&word, at + i * sizeof(word), sizeof(word));
			chain[i] = (chain[i] ^ word) * multiplier;
			chain[i] ^= chain[i] >> 29;
		}
		at += sizeof(chain);
	}
	for (; bytes; bytes--)
		chain[0] = (chain[0] ^ *at++) * multiplier;
	for (i = 1; i < 4; i++)
		chain[0] = (chain[0] ^ chain[i]) * multiplier;
	return chain[0];
}
