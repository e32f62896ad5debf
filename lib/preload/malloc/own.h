/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory for the preload's own bookkeeping, straight from the kernel: inside malloc
 * there is no malloc. It stays until the process ends. Under the caller's lock.
 */
#ifndef LIB_PRELOAD_MALLOC_OWN_H
#define LIB_PRELOAD_MALLOC_OWN_H

#include <stddef.h>

/* Zeroed, at a multiple of 64. NULL: there is none. */
void *own_calloc(size_t count, size_t size);

#endif /* LIB_PRELOAD_MALLOC_OWN_H */
