/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Another preload: a malloc that cannot tell how long its blocks are, in front of a
 * C library that takes what lies before them for a length.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HEADER	64UL

static _Alignas(64) char memory[64 << 20];
static _Atomic size_t used;

void *malloc(size_t size)
{
	size_t room = (size + HEADER - 1) / HEADER * HEADER + HEADER;
	char *block;

	if (size > sizeof(memory) || room > sizeof(memory) - used)
		return NULL;
	block = memory + atomic_fetch_add(&used, room);
	memcpy(block, &size, sizeof(size));
	return block + HEADER;
}

void *calloc(size_t count, size_t size)
{
	return size && count > sizeof(memory) / size ? NULL : malloc(count * size);
}

void *realloc(void *block, size_t size)
{
	void *longer = malloc(size);
	size_t was;

	if (block && longer) {
		memcpy(&was, (char *)block - HEADER, sizeof(was));
		memcpy(longer, block, was < size ? was : size);
	}
	return longer;
}

void free(void *block)
{
}
