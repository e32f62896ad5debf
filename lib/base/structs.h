/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Structs of callers, which may be those of an older or a newer library.
 */
#ifndef LIB_BASE_STRUCTS_H
#define LIB_BASE_STRUCTS_H

#include <stddef.h>

/*
 * Copies a caller's struct, whose first field is its own size, over @into of
 * @size bytes. Fields that the caller does not know become 0; -EINVAL with
 * words if it sets fields that this library does not know, or has no size.
 */
int take_struct(void *into, size_t size, const void *from, const char *what);

/* Copies @from, of @size bytes, to a caller's struct as far as it reaches. */
int give_struct(void *into, const void *from, size_t size, const char *what);

#endif /* LIB_BASE_STRUCTS_H */
