/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * How every subcommand shows what it found. It builds one JSON value; --json
 * prints that value, and a table is a view of an array in it.
 */
#ifndef ACTMEM_TABLE_H
#define ACTMEM_TABLE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "actmem.h"

#define TABLE_EXACT_BYTES	(1u << 0)	/* 1073741824, not 1G */
#define TABLE_NO_HEADINGS	(1u << 1)

/* The text of one cell, from malloc(); NULL: no memory. */
typedef char *(*cell_function)(const json_t *row, const char *key, unsigned int flags);

enum column_how {
	COLUMN_LEFT,
	COLUMN_RIGHT,			/* aligned, as numbers are */
	COLUMN_WRAPPED,			/* sentences: between words, to the terminal's width */
};

struct column {
	const char *heading;
	const char *key;		/* of the row's object */
	cell_function cell;
	enum column_how how;
};

/* Anything as it is; "-" for null and for a missing key. */
char *cell_text(const json_t *row, const char *key, unsigned int flags);

/* The name of the user with that number, or the number. */
char *cell_user(const json_t *row, const char *key, unsigned int flags);

/* 64M, or exact. */
char *cell_bytes(const json_t *row, const char *key, unsigned int flags);

/* A number with two digits behind the point; "-" for anything else. */
char *cell_number(const json_t *row, const char *key, unsigned int flags);

/* Bytes a second as GiB/s. */
char *cell_bandwidth(const json_t *row, const char *key, unsigned int flags);

/* An array of {"node", "bytes"}: 0:64M,1:64M. */
char *cell_nodes(const json_t *row, const char *key, unsigned int flags);

/*
 * Prints an array of objects, one line for each; the headings alone if it is
 * empty. 0 or -ENOMEM; errors of the output are left to stdout's error flag.
 */
int table_print(const json_t *rows, const struct column *columns, size_t column_count,
		unsigned int flags);

/* Prints a value as JSON. 0 or -ENOMEM, as above. */
int table_print_json(const json_t *value);

/*
 * Prints it as JSON, or by @print, which returns as table_print() does. False: told why. NULL
 * is no memory.
 */
bool table_show(const json_t *value, bool as_json, int (*print)(const json_t *value));

/* "64M", "1.5G", "17B"; from malloc(). */
char *bytes_to_text(uint64_t bytes, unsigned int flags);

/* "driver", "2M" and so on, as the options have them. */
const char *backend_text(enum actmem_backend backend);
const char *pages_text(enum actmem_pages pages);

/*
 * Add an item to an array, and the members of another object to an object. They take both
 * values, each of which may be NULL: NULL then, or without memory.
 */
json_t *append_item(json_t *array, json_t *item);
json_t *merge_objects(json_t *object, json_t *more);

/* A JSON string; bytes that are not UTF-8 become '?'. */
json_t *text_to_json(const char *text);

/* Likewise of what a format makes. */
json_t *format_to_json(const char *format, va_list arguments);

/*
 * A JSON number; null for UINT64_MAX, which stands for "no limit". A larger number than
 * JSON's becomes the largest one.
 */
json_t *limit_to_json(uint64_t bytes);

#endif
