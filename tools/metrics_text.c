// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Writes JSON rows in the text format of Prometheus, version 0.0.4. */
#include <string.h>
#include "metrics.h"

#define NS_PER_SECOND	1e9

static void write_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else
			putc(*text, out);
	}
}

static void write_label(FILE *out, const json_t *row, const char *label)
{
	const json_t *value = json_object_get(row, label);

	fprintf(out, "%s=\"", label);
	if (json_is_integer(value))
		fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_string(value))
		write_escaped(out, json_string_value(value));
	else if (json_is_boolean(value))
		fputs(json_is_true(value) ? "true" : "false", out);
	putc('"', out);
}

static void write_labels(FILE *out, const json_t *row, const char *const *labels)
{
	size_t i;

	for (i = 0; labels[i]; i++) {
		putc(i ? ',' : '{', out);
		write_label(out, row, labels[i]);
	}
	if (i)
		putc('}', out);
}

/* Returns the value, or NULL if the row does not have it. */
static const json_t *find_value(const json_t *row, const char *key)
{
	const char *point = strchr(key, '.');
	char first[32];

	if (!point)
		return json_object_get(row, key);
	snprintf(first, sizeof(first), "%.*s", (int)(point - key), key);
	return find_value(json_object_get(row, first), point + 1);
}

static bool is_told(const json_t *value, const struct metric *metric)
{
	return json_is_number(value) || json_is_boolean(value) ||
	       (metric->is_limit && json_is_null(value));
}

static void write_value(FILE *out, const json_t *value, const struct metric *metric)
{
	if (json_is_null(value))
		fputs(" +Inf\n", out);
	else if (metric->is_ns)
		fprintf(out, " %.9f\n", json_number_value(value) / NS_PER_SECOND);
	else if (json_is_boolean(value))
		fprintf(out, " %d\n", json_is_true(value));
	else
		fprintf(out, " %" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
}

void metrics_write(FILE *out, const json_t *rows, const char *const *labels,
		   const struct metric *metrics, size_t count)
{
	const struct metric *metric;
	size_t i;

	for (metric = metrics; metric < metrics + count; metric++) {
		const json_t *row;
		bool has_head = false;

		json_array_foreach(rows, i, row) {
			const json_t *value = find_value(row, metric->key);

			if (!is_told(value, metric))
				continue;
			if (!has_head)
				fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name,
					metric->help, metric->name, metric->type);
			has_head = true;
			fputs(metric->name, out);
			write_labels(out, row, labels);
			write_value(out, value, metric);
		}
	}
}
