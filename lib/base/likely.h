/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Hints to the compiler about branches and functions in which nanoseconds matter. */
#ifndef LIB_BASE_LIKELY_H
#define LIB_BASE_LIKELY_H

#define LIKELY(x)	__builtin_expect(!!(x), 1)

/*
 * Marks a function that every transfer calls. The linker places these functions next to each other,
 * on few pages. After a sleep of milliseconds, a thread finds none of its code cached, and needs
 * less time to load few pages than many.
 */
#define HOT	__attribute__((hot))

#endif /* LIB_BASE_LIKELY_H */
