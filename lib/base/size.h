/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Sizes as users write them. This file is also linked into the `actmem` command, the XLA handlers,
 * and the library that `actmem run` preloads.
 */
#ifndef LIB_BASE_SIZE_H
#define LIB_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Parses a number that can end in K, M, G or T, in upper or lower case. Returns false and leaves
 * *@bytes unchanged if @text has another form, or if the number is too large. Does not allocate.
 */
bool size_from_text(const char *text, uint64_t *bytes);

#endif /* LIB_BASE_SIZE_H */
