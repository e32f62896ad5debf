/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Sentences in lines that a terminal has room for. */
#ifndef ACTMEM_WRAP_H
#define ACTMEM_WRAP_H

#include <stddef.h>
#include <libsmartcols.h>

/* Columns of stdout's terminal; 0: it is none, and lines may be as long as they are. */
size_t terminal_width(void);

/*
 * The text with '\n' in place of spaces, so that its lines have so many columns at most,
 * unless a word is longer: words stay whole, as one wants to copy paths. From malloc();
 * NULL: no memory.
 */
char *wrap_text(const char *text, size_t width);

/* A table's column in lines that the terminal has room for beside the others. 0 or -ENOMEM. */
int wrap_column(struct libscols_table *table, size_t column);

#endif
