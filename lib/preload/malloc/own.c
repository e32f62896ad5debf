/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory for the preload's own bookkeeping.
 */
#include <stdint.h>
#include <sys/mman.h>

#include "preload/malloc/own.h"

#define PIECE_BYTES	(256UL << 10)
#define ALIGN		64UL

static char *rest;
static size_t rest_bytes;

void *own_calloc(size_t count, size_t size)
{
	size_t bytes, mapped;
	void *memory;

	if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX)
		return NULL;
	bytes = (bytes + ALIGN - 1) & ~(ALIGN - 1);
	if (bytes > rest_bytes) {
		mapped = bytes > PIECE_BYTES ? bytes : PIECE_BYTES;
		memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
		if (memory == MAP_FAILED)
			return NULL;
		rest = memory;
		rest_bytes = mapped;
	}
	memory = rest;
	rest += bytes;
	rest_bytes -= bytes;
	return memory;
}
