/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Intercepts the functions that allocate aligned blocks, and those that have a block as an
 * argument. In malloc mode, large aligned blocks come from large.h. All other calls go to the next
 * malloc: the one that the program would use without the preload. malloc() and calloc() are not
 * intercepted: many programs touch only a few pages of their large blocks, so huge pages would
 * waste memory.
 */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "preload/malloc/large.h"
#include "preload/malloc/next.h"

#define EXPORT		__attribute__((visibility("default")))
#define SMALL_PAGE	4096UL
/* malloc() already aligns to 16 bytes, so only larger alignments count as aligned. */
#define LEAST_ALIGN	32UL
#define PIECE_BYTES	(16UL << 20)

/* Functions of C23, which older C libraries do not declare. */
void free_sized(void *memory, size_t size);
void free_aligned_sized(void *memory, size_t align, size_t size);

static bool is_small(size_t size)
{
	return size < large_gate.min_bytes;
}

/* Allocates a large block. Returns NULL if the next malloc should allocate the block. */
static void *alloc_large(size_t align, size_t size)
{
	bool is_power = !(align & (align - 1));

	return is_small(size) || align < LEAST_ALIGN || !is_power ? NULL : large_alloc(size, align);
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

/* Copies a block piece by piece, and returns the pages of each copied piece to the kernel. */
static void move_bytes(char *to, char *from, size_t bytes)
{
	size_t some;

	for (; bytes; to += some, from += some, bytes -= some) {
		some = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
		memcpy(to, from, some);
		if (some == PIECE_BYTES)
			madvise((void *)round_up((uintptr_t)from, SMALL_PAGE),
				PIECE_BYTES - SMALL_PAGE, MADV_DONTNEED);
	}
}

static void *realloc_large(void *memory, size_t size)
{
	size_t was = large_usable_size(memory);
	void *moved = NULL;

	if (!is_small(size) && large_resize(memory, size))
		return memory;
	/* Shortening a block must not fail. */
	if (size && !(moved = malloc(size)))
		return size <= was ? memory : NULL;
	if (moved)
		move_bytes(moved, memory, was < size ? was : size);
	large_free(memory);
	return moved;
}

/*
 * When a block of the next malloc grows, it stays a block of the next malloc, which can move pages
 * without a copy.
 */
EXPORT void *realloc(void *memory, size_t size)
{
	return large_is(memory) ? realloc_large(memory, size) : get_next()->realloc(memory, size);
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
