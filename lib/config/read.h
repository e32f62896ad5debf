/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads environment variables: the options (knobs) of table.h. The functions allocate no memory,
 * because the library that `actmem run` preloads (the preload) reads variables before the C library
 * is ready.
 */
#ifndef LIB_CONFIG_READ_H
#define LIB_CONFIG_READ_H

#include <unistd.h>

#include "config/knob.h"

#define READER_ERROR_MAX	1024
#define KNOB_CHOICE_MAX		256
/*
 * With this value of @names, @error contains marks (knob.h) in place of names, as messages for
 * fail() do.
 */
#define NAMES_AS_MARKS		UINT32_MAX

struct reader {
	const char *const *variables;	/* strings "NAME=value", then a NULL; or NULL */
	unsigned int names;		/* enum actmem_names, or NAMES_AS_MARKS */
	char error[READER_ERROR_MAX];	/* the first error message; "" if all values are right */
};

/* A reader of this process's environment. @by is the initial value of the member @names. */
#define READER(by)	((struct reader){ (const char *const *)environ, .names = (by) })

/* Returns the text of a variable, or NULL if the variable is empty or not set. */
const char *reader_text(const struct reader *reader, enum knob knob);

/* Returns the value of a variable, or knob_info.initial if the variable is not set or wrong. */
uint64_t reader_value(struct reader *reader, enum knob knob);

/* Checks and returns @given, which the program passed. If @given is 0, returns reader_value(). */
uint64_t reader_value_or(struct reader *reader, enum knob knob, uint64_t given);

/* Sets the error message, unless the reader already has one. */
void reader_fail(struct reader *reader, const char *format, ...)
	__attribute__((cold, format(printf, 2, 3)));

/*
 * Sets an error message that shows the wrong value of a variable. @choice describes the allowed
 * values. If @choice is NULL, the message has the text of knob_choice().
 */
void reader_refuse(struct reader *reader, enum knob knob, const char *choice);

/*
 * Describes the allowed values of a variable, for a message such as "must be ...". Returns @text or
 * a literal string.
 */
const char *knob_choice(char text[KNOB_CHOICE_MAX], enum knob knob);

/* Returns true if the environment sets a variable to a nonempty text. */
bool knob_is_set(enum knob knob);

/*
 * Returns true if the environment sets a switch to 1. Call reader_check_switches() first, because
 * that function sets an error message if any switch is neither 0 nor 1.
 */
bool knob_is_on(enum knob knob);
void reader_check_switches(struct reader *reader);

/*
 * Checks all variables except those of kind KNOB_TEXT, even variables that the caller never reads.
 */
void reader_check_values(struct reader *reader);

#endif /* LIB_CONFIG_READ_H */
