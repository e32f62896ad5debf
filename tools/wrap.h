/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Wraps sentences to the width of the terminal. */
#ifndef ACTMEM_WRAP_H
#define ACTMEM_WRAP_H

#include <stddef.h>
#include <libsmartcols.h>

/*
 * Returns the width of stdout's terminal. Returns 0 if stdout is not a terminal; lines then need no
 * wrapping.
 */
size_t terminal_width(void);

/*
 * Replaces spaces in a copy of @text by '\n', so that its lines have at most @width columns. A word
 * longer than @width stays whole, so that users can copy paths. Returns the copy, which the caller
 * must free(), or NULL if out of memory.
 */
char *wrap_text(const char *text, size_t width);

/* Wraps a table's column to the width that the other columns leave. Returns 0 or -ENOMEM. */
int wrap_column(struct libscols_table *table, size_t column);

#endif
