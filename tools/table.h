/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Prints the results of subcommands. A subcommand builds one JSON value. --json prints that value;
 * a table shows an array that the value contains.
 */
#ifndef ACTMEM_TABLE_H
#define ACTMEM_TABLE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "actmem.h"

#define TABLE_EXACT_BYTES	(1u << 0)	/* print 1073741824, not 1G */
#define TABLE_NO_HEADINGS	(1u << 1)

/* Returns the text of one cell, which the caller frees, or NULL if out of memory. */
typedef char *(*cell_function)(const json_t *row, const char *key, unsigned int flags);

enum column_how {
	COLUMN_LEFT,
	COLUMN_RIGHT,			/* right-aligned, for numbers */
	COLUMN_WRAPPED,			/* sentences, wrapped to the terminal's width */
};

struct column {
	const char *heading;
	const char *key;		/* in the row's object */
	cell_function cell;
	enum column_how how;
};

/* Formats any value as it is; "-" for null and for a missing key. */
char *cell_text(const json_t *row, const char *key, unsigned int flags);

/* Shows the name of the user with that number, or else the number. */
char *cell_user(const json_t *row, const char *key, unsigned int flags);

/* Formats bytes as 64M, or exactly with TABLE_EXACT_BYTES. */
char *cell_bytes(const json_t *row, const char *key, unsigned int flags);

/* Formats a number with two decimals; "-" for any other value. */
char *cell_number(const json_t *row, const char *key, unsigned int flags);

/* Formats bytes per second in GiB/s. */
char *cell_bandwidth(const json_t *row, const char *key, unsigned int flags);

/* Formats an array of {"node", "bytes"} as 0:64M,1:64M. */
char *cell_nodes(const json_t *row, const char *key, unsigned int flags);

/*
 * Prints an array of objects, one per line, or only the headings if the array is empty. Returns 0
 * or -ENOMEM. A failed write sets the error flag of stdout (ferror(3)).
 */
int table_print(const json_t *rows, const struct column *columns, size_t column_count,
		unsigned int flags);

/* Prints a value as JSON. Returns 0 or -ENOMEM, as table_print() does. */
int table_print_json(const json_t *value);

/*
 * Prints @value as JSON if @as_json, or else with @print, which returns 0 or -ENOMEM. A NULL @value
 * means that the caller ran out of memory. Returns false after printing the error message.
 */
bool table_show(const json_t *value, bool as_json, int (*print)(const json_t *value));

/* Formats bytes as "64M", "1.5G" or "17B". The caller frees the text. */
char *bytes_to_text(uint64_t bytes, unsigned int flags);

/* Return the names that the options use, such as "driver" and "2M". */
const char *backend_text(enum actmem_backend backend);
const char *pages_text(enum actmem_pages pages);

/*
 * Append @item to @array, or add the members of @more to @object. Both functions take ownership of
 * their arguments. Return NULL if an argument is NULL, or if out of memory.
 */
json_t *append_item(json_t *array, json_t *item);
json_t *merge_objects(json_t *object, json_t *more);

/* Returns a JSON string. If the text is not UTF-8, each byte above 127 becomes '?'. */
json_t *text_to_json(const char *text);

/* Formats text as vprintf() does, and returns it as text_to_json() does. */
json_t *format_to_json(const char *format, va_list arguments);

/*
 * Returns a JSON number, or null for UINT64_MAX, which stands for "no limit". Numbers above
 * INT64_MAX become INT64_MAX.
 */
json_t *limit_to_json(uint64_t bytes);

#endif
