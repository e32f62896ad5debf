/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A fast checksum of memory that should be the same later: XXH3 of xxHash, compiled in, so
 * that its shared library is not needed.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checksum.h"

uint64_t checksum(const void *from, uint64_t bytes)
{
	return XXH3_64bits(from, bytes);
}
