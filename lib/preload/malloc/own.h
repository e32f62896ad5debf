/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory for the preload's own bookkeeping, directly from the kernel, because the replacements of
 * malloc() and related functions must not call malloc(). This memory is never freed. The caller's
 * lock guards the allocator.
 */
#ifndef LIB_PRELOAD_MALLOC_OWN_H
#define LIB_PRELOAD_MALLOC_OWN_H

#include <stddef.h>

/* Allocates zeroed memory, aligned to 64 bytes. Returns NULL if there is none. */
void *own_calloc(size_t count, size_t size);

#endif /* LIB_PRELOAD_MALLOC_OWN_H */
