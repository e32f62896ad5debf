/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The last failure of each thread, in words.
 */
#ifndef LIB_BASE_ERROR_H
#define LIB_BASE_ERROR_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define ERROR_TEXT_MAX	1024
#define BYTES_TEXT_MAX	24
#define PATH_TEXT_MAX	1024	/* of longer paths, so much is told */

/* Sets this thread's words, in which KNOB() marks an option, and returns -@error. */
int fail(int error, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));

/* Adds to this thread's words what followed from the failure that they tell. */
void fail_more(const char *format, ...) __attribute__((cold, format(printf, 1, 2)));

void fail_clear(void);

/* This thread's words as fail() had them, with marks for knobs: to be put into others. */
const char *fail_words(void);

/* Returns this thread's buffer for fail_words() with names for the marks; NULL: it has none. */
char *fail_text(void);

/*
 * Sets again the words that fail_words() had before a call with failures of its own; returns
 * @error, which is negative.
 */
int fail_as_before(int error, const char *words) __attribute__((cold));

/* Tells whether a call failed for want of memory, or by the limit of somebody else. */
static inline bool is_out_of_memory(int error)
{
	return error == -ENOMEM || error == -EDQUOT || error == -ENOSPC;
}

/* "3.1 GiB", "512 B". */
const char *bytes_text(char text[BYTES_TEXT_MAX], uint64_t bytes);

#define BYTES_TEXT(n)	bytes_text((char[BYTES_TEXT_MAX]){0}, (n))

#endif /* LIB_BASE_ERROR_H */
