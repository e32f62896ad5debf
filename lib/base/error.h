/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The last error message of each thread.
 */
#ifndef LIB_BASE_ERROR_H
#define LIB_BASE_ERROR_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define ERROR_TEXT_MAX	1024
#define BYTES_TEXT_MAX	24
#define PATH_TEXT_MAX	1024	/* longer paths are cut off */

/*
 * Sets this thread's error message, and returns -@error. To name an option, pass KNOB()
 * (config/knob.h) as an argument.
 */
int fail(int error, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));

/* Appends text, such as a consequence of the failure, to this thread's error message. */
void fail_more(const char *format, ...) __attribute__((cold, format(printf, 1, 2)));

void fail_clear(void);

/*
 * Returns this thread's error message, for use in another message. The message has a mark in place
 * of each option's name (config/knob.h).
 */
const char *fail_words(void);

/*
 * Returns this thread's buffer for the error message with the options' names in place of the marks.
 * The buffer has ERROR_TEXT_MAX bytes. Returns NULL if the thread has no buffer.
 */
char *fail_text(void);

/*
 * Restores an error message that a later call may have replaced. @words is a copy of fail_words()
 * from before that call. Returns @error, which is negative.
 */
int fail_as_before(int error, const char *words) __attribute__((cold));

/*
 * Appends RLIMIT_AS to this thread's error message if mmap() failed with -ENOMEM and the limit is
 * set. Returns @error, which is negative.
 */
int fail_more_address_space(int error) __attribute__((cold));

/* Returns true if a call failed because memory or disk space was short, or because of a limit. */
static inline bool is_out_of_memory(int error)
{
	return error == -ENOMEM || error == -EDQUOT || error == -ENOSPC;
}

/* Formats @bytes as text in @text, such as "3.1 GiB" or "512 B", and returns @text. */
const char *bytes_text(char text[BYTES_TEXT_MAX], uint64_t bytes);

#define BYTES_TEXT(n)	bytes_text((char[BYTES_TEXT_MAX]){0}, (n))

#endif /* LIB_BASE_ERROR_H */
