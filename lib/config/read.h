/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the variables of the table, without allocating: the preload reads its variables before
 * the C library is ready.
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

/* Returns the value of a variable; that of knob_info.initial if it is not set, or wrong. */
uint64_t reader_value(struct reader *reader, enum knob knob);

/* Returns @given, which the program set; if @given is 0, the value of the variable. */
uint64_t reader_value_or(struct reader *reader, enum knob knob, uint64_t given);

/* Sets the error message, unless the reader has one. */
void reader_fail(struct reader *reader, const char *format, ...)
	__attribute__((cold, format(printf, 2, 3)));

/*
 * Sets an error message with the value of a variable, and with @choice, the values that it may
 * have. NULL: those of the table.
 */
void reader_refuse(struct reader *reader, enum knob knob, const char *choice);

/* Writes the values that a variable may have, for "must be ...". Returns @text or a literal. */
const char *knob_choice(char text[KNOB_CHOICE_MAX], enum knob knob);

/* Returns true if the environment sets a variable to other than "". */
bool knob_is_set(enum knob knob);

/*
 * Returns true if the environment sets a switch to 1. A program calls reader_check_switches()
 * first, which sets an error message if a switch is neither 0 nor 1.
 */
bool knob_is_on(enum knob knob);
void reader_check_switches(struct reader *reader);

/* Does the same for all variables that are no text, also those that the caller does not read. */
void reader_check_values(struct reader *reader);

#endif /* LIB_CONFIG_READ_H */
