// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Finds a model in a file of comma-separated values. Its first line has the names of the columns,
 * and each other line is a model. Lines that begin with '#' are comments.
 */
#include <err.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../tools/tool.h"
#include "models.h"

#define BFLOAT16_BYTES	2
#define DIMENSION_MAX	(1U << 20)
#define HEADING		"model,layers,hidden,d_ff,q_heads,kv_heads,head_dim"

const char *const model_tensors[MODEL_TENSORS] = { "Q", "K", "V" };

/*
 * Finds the installed file. Relative to the command's folder, its path is the same in build/ and
 * under PREFIX.
 */
static bool installed_path(char path[PATH_MAX])
{
	static const char place[] = "/share/actmem/models.csv";
	char *slash;

	if (!own_folder(path)) {
		warn("cannot tell where this command lies");
		return false;
	}
	slash = strrchr(path, '/');
	if (!slash || slash - path + sizeof(place) > PATH_MAX)
		return false;
	strcpy(slash, place);
	return true;
}

static bool parse_dimension(const char *text, uint32_t *value)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(text, &end, 10);
	*value = (uint32_t)number;
	return *text >= '0' && *text <= '9' && !*end && !errno && number &&
	       number <= DIMENSION_MAX;
}

static bool is_utf8(const char *text)
{
	json_t *value = json_string(text);

	json_decref(value);
	return value;
}

/* Splits the line at its commas. Returns false unless it has one valid value for each column. */
static bool parse_model(char *line, struct model *model)
{
	uint32_t *const values[] = { &model->layers, &model->hidden, &model->d_ff,
				     &model->q_heads, &model->kv_heads, &model->head_dim };
	char *rest = line, *word = strsep(&rest, ",");
	size_t i;

	if (!*word || strlen(word) >= sizeof(model->name) || !is_utf8(word))
		return false;
	strcpy(model->name, word);
	for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		word = strsep(&rest, ",");
		if (!word || !parse_dimension(word, values[i]))
			return false;
	}
	return !rest;
}

/*
 * Returns 1 for a model, 0 for the heading, a comment or an empty line, and -1 for any other line.
 */
static int read_line(char *line, bool *has_heading, struct model *model)
{
	line[strcspn(line, "\r\n")] = '\0';
	if (!*line || *line == '#')
		return 0;
	if (*has_heading)
		return parse_model(line, model) ? 1 : -1;
	*has_heading = !strcmp(line, HEADING);
	return *has_heading ? 0 : -1;
}

static void add_name(char *names, size_t size, const char *name)
{
	size_t length = strlen(names);

	snprintf(names + length, size - length, "%s%s", length ? ", " : "", name);
}

static bool find_in(FILE *file, const char *path, const char *name, struct model *model)
{
	char names[512] = "", *line = NULL;
	unsigned int number = 0;
	bool has_heading = false, found = false;
	size_t size = 0;
	int is_model = 0;

	while (!found && is_model >= 0 && getline(&line, &size, file) >= 0) {
		number++;
		is_model = read_line(line, &has_heading, model);
		if (is_model <= 0)
			continue;
		found = !strcmp(model->name, name);
		add_name(names, sizeof(names), model->name);
	}
	free(line);
	if (is_model < 0 && !has_heading)
		warnx("%s:%u: expected the names of the columns, " HEADING, path, number);
	else if (is_model < 0)
		warnx("%s:%u: expected a name in UTF-8 and six numbers from 1 to %u, as " HEADING, path,
		      number, DIMENSION_MAX);
	else if (ferror(file))
		warn("cannot read '%s'", path);
	else if (!found)
		warnx("no model '%s' in %s: it has %s", name, path, *names ? names : "none");
	return found;
}

bool model_find(const char *path, const char *name, struct model *model)
{
	char installed[PATH_MAX];
	FILE *file;
	bool found;

	if (!path) {
		if (!installed_path(installed))
			return false;
		path = installed;
	}
	file = fopen(path, "re");
	if (!file) {
		warn("cannot open '%s'", path);
		return false;
	}
	found = find_in(file, path, name, model);
	fclose(file);
	return found;
}

double model_tensor_bytes(const struct model *model, unsigned int tensor, uint64_t tokens)
{
	double heads = tensor ? model->kv_heads : model->q_heads;

	return (double)tokens * heads * model->head_dim * BFLOAT16_BYTES;
}
