/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * malloc() and related functions, in front of the program's own. Large blocks come from large.h if
 * the environment asks for that. All other calls go to the next malloc.
 */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "preload/malloc/large.h"
#include "preload/malloc/next.h"

#define EXPORT		__attribute__((visibility("default")))
#define SMALL_PAGE	4096UL
#define MALLOC_ALIGN	16UL

/* C23 and newer C libraries declare these. */
void free_sized(void *memory, size_t size);
void free_aligned_sized(void *memory, size_t align, size_t size);

static bool is_small(size_t size)
{
	return size < large_gate.min_bytes;
}

/* Returns NULL if the next malloc should allocate the block. */
static void *alloc_large(size_t align, size_t size)
{
	/* Every function of this file accepts a power of two of at least one pointer. */
	bool is_plain = align >= sizeof(void *) && !(align & (align - 1));

	return is_small(size) || !is_plain ? NULL : large_alloc(size, align, LARGE_ANY);
}

EXPORT void *malloc(size_t size)
{
	return alloc_large(MALLOC_ALIGN, size) ?: get_next()->malloc(size);
}

EXPORT void free(void *memory)
{
	if (large_is(memory))
		large_free(memory);
	else
		get_next()->free(memory);
}

EXPORT void free_sized(void *memory, size_t size)
{
	free(memory);
}

EXPORT void free_aligned_sized(void *memory, size_t align, size_t size)
{
	free(memory);
}

EXPORT void *calloc(size_t count, size_t size)
{
	size_t bytes;
	void *memory;

	if (__builtin_mul_overflow(count, size, &bytes) || is_small(bytes))
		return get_next()->calloc(count, size);
	memory = large_alloc(bytes, 1, LARGE_ZERO);
	return memory ? memory : get_next()->calloc(count, size);
}

/* Moves a block to another place. It may change between large and small. */
static void *move_block(void *memory, size_t was, size_t size)
{
	void *moved = is_small(size) ? NULL : large_alloc(size, 1, LARGE_GROWS);

	if (!moved)
		moved = get_next()->malloc(size);
	if (!moved)
		return NULL;
	memcpy(moved, memory, was < size ? was : size);
	free(memory);
	return moved;
}

static void *realloc_large(void *memory, size_t size)
{
	void *moved;

	if (!size) {
		large_free(memory);
		return NULL;
	}
	if (!is_small(size) && large_resize(memory, size))
		return memory;
	moved = move_block(memory, large_usable_size(memory), size);
	/* Shortening a block must not fail. */
	return !moved && size <= large_usable_size(memory) ? memory : moved;
}

EXPORT void *realloc(void *memory, size_t size)
{
	if (!memory)
		return malloc(size);
	if (large_is(memory))
		return realloc_large(memory, size);
	if (is_small(size) || !get_next()->knows_sizes)
		return get_next()->realloc(memory, size);
	return move_block(memory, get_next()->malloc_usable_size(memory), size);
}

EXPORT void *reallocarray(void *memory, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(memory, bytes);
}

EXPORT int posix_memalign(void **memory, size_t align, size_t size)
{
	void *block = alloc_large(align, size);

	if (!block)
		return get_next()->posix_memalign(memory, align, size);
	*memory = block;
	return 0;
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
	return alloc_large(align, size) ?: get_next()->aligned_alloc(align, size);
}

EXPORT void *memalign(size_t align, size_t size)
{
	return alloc_large(align, size) ?: get_next()->memalign(align, size);
}

EXPORT void *valloc(size_t size)
{
	return alloc_large(SMALL_PAGE, size) ?: get_next()->valloc(size);
}

/* Allocates whole pages. */
EXPORT void *pvalloc(size_t size)
{
	size_t whole = (size + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1);

	return (whole < size ? NULL : alloc_large(SMALL_PAGE, whole)) ?: get_next()->pvalloc(size);
}

EXPORT size_t malloc_usable_size(void *memory)
{
	return large_is(memory) ? large_usable_size(memory) :
	       get_next()->malloc_usable_size(memory);
}

EXPORT int malloc_trim(size_t pad)
{
	bool any = large_gate.owners && large_trim();

	return get_next()->malloc_trim(pad) || any;
}
