/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Parses values of options. A function tells by warnx(), with the option's name, the
 * values that the option may have, and returns false, if it has another.
 */
#ifndef ACTMEM_PARSE_H
#define ACTMEM_PARSE_H

#include <stdbool.h>
#include <stdint.h>

bool option_bytes(const char *option, const char *text, uint64_t least, uint64_t most,
		  uint64_t *bytes);
bool option_count(const char *option, const char *text, uint64_t least, uint64_t most,
		  uint64_t *count);
bool option_number(const char *option, const char *text, double least, double most,
		   double *number);

/* 1/64 or 0.5: above 0, and at most @most. */
bool option_fraction(const char *option, const char *text, double most, double *fraction);

/* One more of the folders to spill to. */
bool option_folder(const char *path, const char **paths, uint32_t *count);

/* *@choice: the index in @choices, an array that ends with NULL. */
bool option_choice(const char *option, const char *text, const char *const *choices,
		   unsigned int *choice);

#endif
