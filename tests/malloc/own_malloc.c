/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program with a malloc of its own, but no posix_memalign: a preload that gave it
 * memory by that name would have it freed here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(64) char memory[8 << 20];
static size_t used;

void *malloc(size_t size)
{
	char *block = memory + used + 16;

	if (size > sizeof(memory) - used - 32)
		return NULL;
	memcpy(block - 16, &size, sizeof(size));
	used += (size + 31) / 16 * 16;
	return block;
}

void *calloc(size_t count, size_t size)
{
	return malloc(count * size);
}

void *realloc(void *block, size_t size)
{
	void *longer = malloc(size);
	size_t was;

	if (block && longer) {
		memcpy(&was, (char *)block - 16, sizeof(was));
		memcpy(longer, block, was < size ? was : size);
	}
	return longer;
}

void free(void *block)
{
	size_t at = (size_t)((char *)block - memory);

	if (block && at >= sizeof(memory))
		puts("freed what is not its own");
}

int main(void)
{
	void *block = malloc(2 << 20), *other = NULL;

	if (posix_memalign(&other, 64, 2 << 20))
		return 1;
	memset(other, 1, 2 << 20);
	puts(block ? "allocated" : "refused");
	free(block);
	/* glibc's own, which this free() does not know: the preload has not taken over. */
	return getenv("ACTMEM_MALLOC") ? 0 : 1;
}
