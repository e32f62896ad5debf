/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A fast checksum that detects changes of memory: XXH3 of xxHash. It is compiled in, so that the
 * library does not need xxHash's shared library.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checksum.h"

uint64_t checksum(const void *from, uint64_t bytes)
{
	return XXH3_64bits(from, bytes);
}
