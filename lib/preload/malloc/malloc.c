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

/* C23 and newer C libraries declare these. */
void free_sized(void *memory, size_t size);
void free_aligned_sized(void *memory, size_t align, size_t size);

static bool is_small(size_t size)
{
	return LIKELY(size < large_gate.min_bytes);
}

/* Returns true if all of the functions accept the alignment. */
static bool is_plain(size_t align)
{
	return align >= sizeof(void *) && !(align & (align - 1));
}

static __attribute__((noinline)) void *malloc_large(size_t size)
{
	void *memory = large_alloc(size, 1, LARGE_ANY);

	return memory ? memory : next.malloc(size);
}

EXPORT void *malloc(size_t size)
{
	return is_small(size) ? next.malloc(size) : malloc_large(size);
}

EXPORT void free(void *memory)
{
	if (LIKELY(!large_is(memory)))
		next.free(memory);
	else
		large_free(memory);
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
		return next.calloc(count, size);
	memory = large_alloc(bytes, 1, LARGE_ZERO);
	return memory ? memory : next.calloc(count, size);
}

/* Moves a block to another place. It may change between large and small. */
static void *move_block(void *memory, size_t was, size_t size)
{
	void *moved = is_small(size) ? NULL : large_alloc(size, 1, LARGE_GROWS);

	if (!moved)
		moved = next.malloc(size);
	if (!moved)
		return NULL;
	memcpy(moved, memory, was < size ? was : size);
	free(memory);
	return moved;
}

static __attribute__((noinline)) void *realloc_large(void *memory, size_t size)
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
	if (is_small(size) || !next.knows_sizes)
		return next.realloc(memory, size);
	return move_block(memory, next.malloc_usable_size(memory), size);
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
	void *block;

	if (is_small(size) || !is_plain(align))
		return next.posix_memalign(memory, align, size);
	block = large_alloc(size, align, LARGE_ANY);
	if (!block)
		return next.posix_memalign(memory, align, size);
	*memory = block;
	return 0;
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
	void *memory = is_small(size) || !is_plain(align) ? NULL :
		       large_alloc(size, align, LARGE_ANY);

	return memory ? memory : next.aligned_alloc(align, size);
}

EXPORT void *memalign(size_t align, size_t size)
{
	void *memory = is_small(size) || !is_plain(align) ? NULL :
		       large_alloc(size, align, LARGE_ANY);

	return memory ? memory : next.memalign(align, size);
}

EXPORT void *valloc(size_t size)
{
	void *memory = is_small(size) ? NULL : large_alloc(size, SMALL_PAGE, LARGE_ANY);

	return memory ? memory : next.valloc(size);
}

/* Allocates whole pages. */
EXPORT void *pvalloc(size_t size)
{
	size_t whole = (size + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1);
	void *memory = is_small(whole) || whole < size ? NULL :
		       large_alloc(whole, SMALL_PAGE, LARGE_ANY);

	return memory ? memory : next.pvalloc(size);
}

EXPORT size_t malloc_usable_size(void *memory)
{
	return LIKELY(!large_is(memory)) ? next.malloc_usable_size(memory) :
	       large_usable_size(memory);
}

EXPORT int malloc_trim(size_t pad)
{
	bool any = large_gate.owners && large_trim();

	return next.malloc_trim(pad) || any;
}
