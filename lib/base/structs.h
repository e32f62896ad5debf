/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies structs from and to callers, which may use the headers of an older or newer library.
 */
#ifndef LIB_BASE_STRUCTS_H
#define LIB_BASE_STRUCTS_H

#include <stddef.h>

/*
 * Copies a caller's struct, whose first field is its own size, to @into of @size bytes. Fields that
 * the caller's version of the struct lacks become 0. Returns -EINVAL with an error message if the
 * caller set fields that this library does not know, or did not set the size.
 */
int take_struct(void *into, size_t size, const void *from, const char *what);

/* Copies @from, of @size bytes, to a caller's struct, but no more bytes than that struct has. */
int give_struct(void *into, const void *from, size_t size, const char *what);

#endif /* LIB_BASE_STRUCTS_H */
