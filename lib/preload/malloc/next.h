/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The malloc that the program would use without the preload: glibc's, or the malloc of another
 * library that the program links or preloads.
 */
#ifndef LIB_PRELOAD_MALLOC_NEXT_H
#define LIB_PRELOAD_MALLOC_NEXT_H

#include <stdbool.h>
#include <stddef.h>

struct next {
	bool is_found;
	void (*free)(void *memory);
	void *(*realloc)(void *memory, size_t size);
	int (*posix_memalign)(void **memory, size_t align, size_t size);
	void *(*aligned_alloc)(size_t align, size_t size);
	void *(*memalign)(size_t align, size_t size);
	void *(*valloc)(size_t size);
	void *(*pvalloc)(size_t size);
	size_t (*malloc_usable_size)(void *memory);
	int (*malloc_trim)(size_t pad);
};

extern struct next next;

/* Finds the functions. If dlsym() calls one during the search, the call fails or does nothing. */
const struct next *find_next(void);

/* Returns the functions. May be called at any time. */
static inline const struct next *get_next(void)
{
	return next.is_found ? &next : find_next();
}

#endif /* LIB_PRELOAD_MALLOC_NEXT_H */
