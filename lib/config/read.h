/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the variables of the table, without allocating memory: the library that `actmem run`
 * preloads (the preload) reads its variables before the C library is ready.
 */
#ifndef LIB_CONFIG_READ_H
#define LIB_CONFIG_READ_H

#include "config/knob.h"

#define READER_ERROR_MAX	1024
#define KNOB_CHOICE_MAX		256
#define NAMES_AS_MARKS		UINT32_MAX	/* keeps the marks, for fail() */

struct reader {
	const char *const *variables;	/* "NAME=value" up to a NULL; or NULL */
	unsigned int names;		/* enum actmem_names, or NAMES_AS_MARKS */
	char error[READER_ERROR_MAX];	/* the first error message; "" if all values are right */
};

/* Reads the environment of this process. */
#define READER(by)	((struct reader){ (const char *const *)environ, .names = (by) })

/* Returns the text of a variable; NULL if it is empty or not set. */
const char *reader_text(const struct reader *reader, enum knob knob);

/* Returns the value of a variable, or knob_info.initial if the variable is not set or wrong. */
uint64_t reader_value(struct reader *reader, enum knob knob);

/* Checks and returns @given, which the program set. If @given is 0, returns reader_value(). */
uint64_t reader_value_or(struct reader *reader, enum knob knob, uint64_t given);

/* Sets the error message, unless the reader already has one. */
void reader_fail(struct reader *reader, const char *format, ...)
	__attribute__((cold, format(printf, 2, 3)));

/*
 * Sets an error message with the value of a variable. @choice describes the allowed values; NULL:
 * knob_choice().
 */
void reader_refuse(struct reader *reader, enum knob knob, const char *choice);

/* Describes the allowed values of a variable, for "must be ...". Returns @text or a literal. */
const char *knob_choice(char text[KNOB_CHOICE_MAX], enum knob knob);

/* Returns true if the environment sets a variable to a nonempty text. */
bool knob_is_set(enum knob knob);

/*
 * Returns true if the environment sets a switch to 1. Call reader_check_switches() first: it sets
 * an error message if any switch is neither 0 nor 1.
 */
bool knob_is_on(enum knob knob);
void reader_check_switches(struct reader *reader);

/* Checks all variables except KNOB_TEXT, including those that the caller does not read. */
void reader_check_values(struct reader *reader);

#endif /* LIB_CONFIG_READ_H */
