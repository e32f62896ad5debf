/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Parses values of options. If a value is invalid, each function prints the option's name and the
 * valid values with warnx(), and returns false.
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

/* Parses a fraction such as 1/64 or 0.5, which must be above 0 and at most @most. */
bool option_fraction(const char *option, const char *text, double most, double *fraction);

/* Appends @path, the folder of a --spill option, to @paths. */
bool option_folder(const char *path, const char **paths, uint32_t *count);

/* Finds @text in @choices, an array that ends with NULL, and stores its index in *@choice. */
bool option_choice(const char *option, const char *text, const char *const *choices,
		   unsigned int *choice);

#endif
