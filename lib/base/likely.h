/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Hints to the compiler about branches and functions, where nanoseconds count. */
#ifndef LIB_BASE_LIKELY_H
#define LIB_BASE_LIKELY_H

#define LIKELY(x)	__builtin_expect(!!(x), 1)

/*
 * Marks a function that each transfer goes through. These lie next to each other, on few
 * pages, since a thread that has slept for milliseconds finds none of its code cached.
 */
#define HOT	__attribute__((hot))

#endif /* LIB_BASE_LIKELY_H */
