/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the CUDA mode tells on stderr, as there is nobody to return it to.
 */
#ifndef LIB_PRELOAD_CUDA_TELL_H
#define LIB_PRELOAD_CUDA_TELL_H

#include <stdbool.h>
#include <stdint.h>

/* Each is told once. */
enum cuda_tale {
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
	TALE_COUNT,
};

/* One line: @format, which says what and why. */
void cuda_tell(enum cuda_tale tale, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same for what is not told once: for ACTMEM_VERBOSE. */
void cuda_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CUDA_BYTES_MAX	32

/* "64.0 MiB". */
const char *cuda_bytes(char text[CUDA_BYTES_MAX], uint64_t bytes);

#define CUDA_BYTES(bytes)	cuda_bytes((char[CUDA_BYTES_MAX]){0}, (bytes))

#endif /* LIB_PRELOAD_CUDA_TELL_H */
