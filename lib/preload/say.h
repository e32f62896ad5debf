/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Lines on stderr, as there is no caller to return words to.
 */
#ifndef LIB_PRELOAD_SAY_H
#define LIB_PRELOAD_SAY_H

#include <stdbool.h>
#include <stdint.h>

/* Reasons, each of which is told once. */
enum tale {
	TALE_SETTINGS,			/* a variable of the environment is wrong */
	TALE_LIBRARY,			/* libactmem or a call of CUDA is missing */
	TALE_POOL,			/* a device's pool cannot be opened */
	TALE_BLOCK,			/* a block cannot be had */
	TALE_CONTEXT,			/* not the primary one */
	TALE_LOST,			/* a context took its registrations along */
	TALE_REGION,			/* pages for a range that is registered cannot be had */
	TALE_REFUSED,			/* CUDA does not register them */
	TALE_SHORT,			/* a range has no whole huge page */
	TALE_UNSEEN,			/* it cannot be told what holds data */
	TALE_FAR,			/* a range's pages are on other nodes than it asked for */
	TALE_NAMESPACE,			/* a libcuda.so.1 is in a namespace of its own */
	TALE_OLD,			/* one is too old */
	TALE_ANOTHER,			/* another one is in use */
	TALE_COUNT,
};

/* One line: @format, which says what and why. */
void say_once(enum tale tale, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same, each time. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define SAY_BYTES_MAX	32

/* "64.0 MiB". */
const char *say_bytes(char text[SAY_BYTES_MAX], uint64_t bytes);

#define SAY_BYTES(bytes)	say_bytes((char[SAY_BYTES_MAX]){0}, (bytes))

#endif /* LIB_PRELOAD_SAY_H */
