/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What the compiler cannot know of a branch: for calls of a few nanoseconds alone. */
#ifndef LIB_LIKELY_H
#define LIB_LIKELY_H

#define LIKELY(x)	__builtin_expect(!!(x), 1)
#define UNLIKELY(x)	__builtin_expect(!!(x), 0)

#endif /* LIB_LIKELY_H */
