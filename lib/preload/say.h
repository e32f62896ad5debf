/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Prints lines on stderr. The preload prints its error messages, because programs call the preload
 * in place of malloc and CUDA, which return no messages.
 */
#ifndef LIB_PRELOAD_SAY_H
#define LIB_PRELOAD_SAY_H

#include <stdbool.h>
#include <stdint.h>

/* Reasons for a line. say_once() prints at most one line for each reason. */
enum tale {
	TALE_SETTINGS,			/* a variable of the environment is wrong */
	TALE_LIBRARY,			/* libactmem or a function of CUDA is missing */
	TALE_POOL,			/* a device's pool cannot be opened */
	TALE_BLOCK,			/* a block cannot be allocated */
	TALE_CONTEXT,			/* a context is not its device's primary context */
	TALE_LOST,			/* a reset or the program ended a region's registration */
	TALE_REGION,			/* a registered range cannot get pages of a region */
	TALE_REFUSED,			/* CUDA refuses to register a region's pages */
	TALE_SHORT,			/* a range contains no whole huge page */
	TALE_SHARED,			/* a range is shared memory in /dev/shm */
	TALE_UNSEEN,			/* pagemap, which shows touched pages, is not readable */
	TALE_FAR,			/* a range's pages are not on the nodes of its policy */
	TALE_NAMESPACE,			/* a libcuda.so.1 is in a namespace of its own */
	TALE_OLD,			/* a libcuda.so.1 is too old */
	TALE_ANOTHER,			/* another libcuda.so.1 is in use */
	TALE_COUNT,
};

/* Prints one line, which says what failed and why, unless a line for @tale was printed before. */
void say_once(enum tale tale, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Prints one line at each call. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define SAY_BYTES_MAX	32

/* Formats a length, such as "64.0 MiB". */
const char *say_bytes(char text[SAY_BYTES_MAX], uint64_t bytes);

#define SAY_BYTES(bytes)	say_bytes((char[SAY_BYTES_MAX]){0}, (bytes))

#endif /* LIB_PRELOAD_SAY_H */
