// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Prints tables with libsmartcols and JSON with jansson, and formats the cells of tables. */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <libsmartcols.h>
#include "table.h"
#include "wrap.h"

char *bytes_to_text(uint64_t bytes, unsigned int flags)
{
	static const char units[] = "BKMGTPE";
	unsigned int unit = 0;
	char *text;
	int length;

	if (flags & TABLE_EXACT_BYTES) {
		length = asprintf(&text, "%" PRIu64, bytes);
		return length < 0 ? NULL : text;
	}

	while (unit + 1 < sizeof(units) - 1 && bytes >> (10 * (unit + 1)))
		unit++;
	if (bytes & ((1ULL << (10 * unit)) - 1))
		length = asprintf(&text, "%.1f%c", (double)bytes / (1ULL << (10 * unit)),
				  units[unit]);
	else
		length = asprintf(&text, "%" PRIu64 "%c", bytes >> (10 * unit), units[unit]);
	return length < 0 ? NULL : text;
}

const char *backend_text(enum actmem_backend backend)
{
	return backend == ACTMEM_BACKEND_DRIVER ? "driver" : "memfd";
}

const char *pages_text(enum actmem_pages pages)
{
	switch (pages) {
	case ACTMEM_PAGES_1G:
		return "1G";
	case ACTMEM_PAGES_2M:
		return "2M";
	case ACTMEM_PAGES_THP:
		return "thp";
	default:
		return "4K";
	}
}

json_t *append_item(json_t *array, json_t *item)
{
	if (array && !json_array_append_new(array, item))
		return array;
	if (!array)
		json_decref(item);
	json_decref(array);
	return NULL;
}

json_t *merge_objects(json_t *object, json_t *more)
{
	bool is_good = object && more && !json_object_update(object, more);

	json_decref(more);
	if (is_good)
		return object;
	json_decref(object);
	return NULL;
}

json_t *text_to_json(const char *text)
{
	json_t *value = json_string(text);
	char *copy, *c;

	if (value)
		return value;
	copy = strdup(text);
	if (!copy)
		return NULL;
	for (c = copy; *c; c++)
		if (*c & 0x80)
			*c = '?';
	value = json_string(copy);
	free(copy);
	return value;
}

json_t *format_to_json(const char *format, va_list arguments)
{
	json_t *json;
	char *text;

	if (vasprintf(&text, format, arguments) < 0)
		return NULL;
	json = text_to_json(text);
	free(text);
	return json;
}

json_t *limit_to_json(uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		return json_null();
	return json_integer(bytes > INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

char *cell_text(const json_t *row, const char *key, unsigned int flags)
{
	const json_t *value = json_object_get(row, key);

	if (json_is_string(value))
		return strdup(json_string_value(value));
	if (!value || json_is_null(value))
		return strdup("-");
	return json_dumps(value, JSON_ENCODE_ANY);
}

char *cell_user(const json_t *row, const char *key, unsigned int flags)
{
	const struct passwd *user;

	user = getpwuid((uid_t)json_integer_value(json_object_get(row, key)));
	return user ? strdup(user->pw_name) : cell_text(row, key, flags);
}

char *cell_bytes(const json_t *row, const char *key, unsigned int flags)
{
	const json_t *value = json_object_get(row, key);

	if (!json_is_integer(value))
		return strdup("-");
	return bytes_to_text((uint64_t)json_integer_value(value), flags);
}

static char *number_text(const json_t *value, double unit)
{
	char *text;

	if (!json_is_number(value))
		return strdup("-");
	return asprintf(&text, "%.2f", json_number_value(value) / unit) < 0 ? NULL : text;
}

char *cell_number(const json_t *row, const char *key, unsigned int flags)
{
	return number_text(json_object_get(row, key), 1);
}

char *cell_bandwidth(const json_t *row, const char *key, unsigned int flags)
{
	return number_text(json_object_get(row, key), (double)(1 << 30));
}

char *cell_nodes(const json_t *row, const char *key, unsigned int flags)
{
	const json_t *nodes = json_object_get(row, key);
	const json_t *node;
	char *text = NULL;
	size_t i, length;
	FILE *stream;

	if (!json_array_size(nodes))
		return strdup("-");
	stream = open_memstream(&text, &length);
	if (!stream)
		return NULL;
	json_array_foreach(nodes, i, node) {
		char *bytes = cell_bytes(node, "bytes", flags);

		fprintf(stream, "%s%" JSON_INTEGER_FORMAT ":%s", i ? "," : "",
			json_integer_value(json_object_get(node, "node")),
			bytes ? bytes : "");
		free(bytes);
	}
	if (fclose(stream)) {
		free(text);
		return NULL;
	}
	return text;
}

/* libsmartcols prints nothing for a table without lines, not even the headings. */
static void print_headings(const struct column *columns, size_t column_count)
{
	size_t i;

	for (i = 0; i < column_count; i++)
		printf("%s%s", i ? " " : "", columns[i].heading);
	putchar('\n');
}

/* wrap_column() breaks the texts of a COLUMN_WRAPPED column into lines before they are printed. */
static int add_column(struct libscols_table *table, const struct column *of)
{
	struct libscols_column *column;
	int flags = of->how == COLUMN_RIGHT ? SCOLS_FL_RIGHT :
		    of->how == COLUMN_WRAPPED ? SCOLS_FL_WRAP : 0;

	column = scols_table_new_column(table, of->heading, 0, flags);
	if (!column)
		return -ENOMEM;
	if (of->how != COLUMN_WRAPPED)
		return 0;
	return scols_column_set_safechars(column, "\n") ||
	       scols_column_set_wrapfunc(column, scols_wrapnl_chunksize, scols_wrapnl_nextchunk,
					 NULL) ? -ENOMEM : 0;
}

static int add_line(struct libscols_table *table, const json_t *row,
		    const struct column *columns, size_t column_count, unsigned int flags)
{
	struct libscols_line *line = scols_table_new_line(table, NULL);
	size_t i;

	if (!line)
		return -ENOMEM;
	for (i = 0; i < column_count; i++) {
		char *text = columns[i].cell(row, columns[i].key, flags);

		if (!text || scols_line_refer_data(line, i, text)) {
			free(text);
			return -ENOMEM;
		}
	}
	return 0;
}

int table_print(const json_t *rows, const struct column *columns, size_t column_count,
		unsigned int flags)
{
	struct libscols_table *table;
	const json_t *row;
	size_t i;
	int err = -ENOMEM;

	if (!json_array_size(rows)) {
		if (!(flags & TABLE_NO_HEADINGS))
			print_headings(columns, column_count);
		return 0;
	}

	table = scols_new_table();
	if (!table)
		return -ENOMEM;
	if (scols_table_enable_noheadings(table, !!(flags & TABLE_NO_HEADINGS)))
		goto out;
	for (i = 0; i < column_count; i++)
		if (add_column(table, &columns[i]))
			goto out;
	json_array_foreach(rows, i, row) {
		err = add_line(table, row, columns, column_count, flags);
		if (err)
			goto out;
	}
	for (i = 0; i < column_count; i++) {
		err = columns[i].how == COLUMN_WRAPPED ? wrap_column(table, i) : 0;
		if (err)
			goto out;
	}
	/* Any other error is a failed write, which sets the error flag of stdout. */
	err = scols_print_table(table) == -ENOMEM ? -ENOMEM : 0;
out:
	scols_unref_table(table);
	return err;
}

int table_print_json(const json_t *value)
{
	char *text = json_dumps(value, JSON_INDENT(2));

	if (!text)
		return -ENOMEM;
	puts(text);
	free(text);
	return 0;
}

bool table_show(const json_t *value, bool as_json, int (*print)(const json_t *value))
{
	int err = !value ? -ENOMEM : as_json ? table_print_json(value) : print(value);

	if (err)
		warnx("%s", strerror(-err));
	return !err;
}
