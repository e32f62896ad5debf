/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Prints results in the Test Anything Protocol. A program ends with
 * `return tap_end();`: 0 all passed, 1 not, 77 all skipped.
 */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <stdbool.h>

/*
 * One result; prints the file, the line and actmem_error() if @passed is
 * false. Returns @passed.
 */
#define ok(passed, ...)	tap_ok((passed), __FILE__, __LINE__, __VA_ARGS__)

/* One result: whether a call returned what it should. */
#define returns(call, wanted)	tap_returns((call), (wanted), __FILE__, __LINE__, #call)

/* One result: whether actmem_error() has this in it. */
#define says(part)	tap_says((part), __FILE__, __LINE__)

bool tap_ok(bool passed, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
bool tap_returns(int got, int wanted, const char *file, int line, const char *call);
bool tap_says(const char *part, const char *file, int line);
void tap_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the program at once: nothing that follows could work. */
void tap_bail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

int tap_end(void);

#endif /* TESTS_TAP_H */
