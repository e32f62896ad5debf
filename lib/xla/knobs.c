/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads and checks the options of the store of blocks, and names them in error messages; see
 * knobs.h.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "xla/knobs.h"

#define SPILL_ALLOW_FLAGS	(ACTMEM_STORE_ALLOW_MEMORY | ACTMEM_STORE_ALLOW_BUFFERED)

/* Adds a directory whose path has @length bytes. */
static int add_directory(struct knobs *knobs, const char *path, size_t length)
{
	char *copy;

	if (!length || knobs->spill_path_count == KNOBS_SPILL_MAX)
		return -EINVAL;
	copy = strndup(path, length);
	if (!copy)
		return -ENOMEM;
	knobs->spill_paths[knobs->spill_path_count++] = copy;
	return 0;
}

/* Adds the directories of a list that is separated by ':', like PATH. */
static int add_list(struct knobs *knobs, const char *list)
{
	size_t length;
	int error;

	for (;; list += length + 1) {
		length = strcspn(list, ":");
		error = add_directory(knobs, list, length);
		if (error || !list[length])
			return error;
	}
}

static int add_directories(struct knobs *knobs, const char *const *paths, uint32_t count)
{
	uint32_t i;
	int error = 0;

	for (i = 0; !error && i < count; i++)
		error = add_directory(knobs, paths[i], strlen(paths[i]));
	return error;
}

int knobs_take(struct knobs *knobs, const struct actmem_xla_options *options)
{
	int error;

	knobs_forget(knobs);
	if (options->size < sizeof(*options))
		return -EINVAL;
	if (options->spill_allow & ~SPILL_ALLOW_FLAGS &&
	    options->spill_allow != ACTMEM_XLA_SPILL_ALLOW_NOTHING)
		return -EINVAL;
	error = add_directories(knobs, options->spill_paths, options->spill_path_count);
	if (error) {
		knobs_forget(knobs);
		return error;
	}
	knobs->grow_bytes = options->grow_bytes;
	knobs->limit_bytes = options->limit_bytes;
	knobs->budget_bytes = options->budget_bytes;
	knobs->spill_limit_bytes = options->spill_limit_bytes;
	knobs->spill_allow = options->spill_allow;
	knobs->ring_bytes = options->ring_bytes;
	knobs->named = !!options->named;
	knobs->placed = !!options->placed;
	return 0;
}

void knobs_forget(struct knobs *knobs)
{
	while (knobs->spill_path_count)
		free(knobs->spill_paths[--knobs->spill_path_count]);
	memset(knobs, 0, sizeof(*knobs));
}

static int check_directories(int error, struct reader *reader)
{
	if (error == -EINVAL)
		reader_refuse(reader, KNOB_SPILL, NULL);
	else if (error)
		reader_fail(reader, "no memory for bookkeeping");
	return error;
}

int knobs_read_directories(struct knobs *knobs, struct reader *reader)
{
	const char *list = reader_text(reader, KNOB_SPILL);

	return check_directories(list ? add_list(knobs, list) : 0, reader);
}

static int copy_directories(struct knobs *knobs, const struct knobs *given, struct reader *reader)
{
	if (!given->spill_path_count)
		return knobs_read_directories(knobs, reader);
	return check_directories(add_directories(knobs, (const char *const *)given->spill_paths,
						 given->spill_path_count), reader);
}

static void check_together(const struct knobs *knobs, struct reader *reader)
{
	if (knobs->budget_bytes && knobs->limit_bytes)
		reader_fail(reader, "%s and %s are both set, but the budget also limits the heap; omit one of them",
			    KNOB(BUDGET), KNOB(HEAP_LIMIT));
	if (!knobs->budget_bytes && knobs->spill_path_count)
		reader_fail(reader, "there is no budget, so nothing is spilled; set %s, or omit %s",
			    KNOB(BUDGET), KNOB(SPILL));
	if (knobs->spill_limit_bytes && !knobs->spill_path_count)
		reader_fail(reader, "there is no directory to spill to; set %s, or omit %s",
			    KNOB(SPILL), KNOB(SPILL_LIMIT));
}

int knobs_complete(struct knobs *knobs, const struct knobs *given, unsigned int names,
		   char *words, size_t words_size)
{
	struct reader reader = READER(names);
	int error;

	knobs_forget(knobs);
	*knobs = *given;
	knobs->names = names;
	knobs->spill_path_count = 0;		/* the paths are copied below */
	knobs->grow_bytes = reader_value_or(&reader, KNOB_HEAP_GROW, given->grow_bytes);
	knobs->limit_bytes = reader_value_or(&reader, KNOB_HEAP_LIMIT, given->limit_bytes);
	knobs->budget_bytes = reader_value_or(&reader, KNOB_BUDGET, given->budget_bytes);
	knobs->spill_limit_bytes = reader_value_or(&reader, KNOB_SPILL_LIMIT,
						   given->spill_limit_bytes);
	knobs->ring_bytes = reader_value_or(&reader, KNOB_DEVICE_RING, given->ring_bytes);
	knobs->spill_allow = given->spill_allow ?: reader_value(&reader, KNOB_SPILL_ALLOW);
	knobs->spill_allow &= SPILL_ALLOW_FLAGS;
	reader_value(&reader, KNOB_UPDATE_THREADS);	/* checked here; used in lib/update */
	reader_check_switches(&reader);
	if (knob_is_on(KNOB_STRICT))
		knobs->spill_allow |= ACTMEM_STORE_STRICT;
	error = copy_directories(knobs, given, &reader);
	check_together(knobs, &reader);
	if (!*reader.error)
		return 0;
	snprintf(words, words_size, "%s", reader.error);
	knobs_forget(knobs);
	return error ? error : -EINVAL;
}

bool knobs_are_of_directory(const struct knobs *knobs, const char *why)
{
	char quoted[PATH_MAX + 1];
	uint32_t i;

	/* The error message quotes an absolute path, which ends with the path in @knobs. */
	for (i = 0; i < knobs->spill_path_count; i++) {
		snprintf(quoted, sizeof(quoted), "%s'", knobs->spill_paths[i]);
		if (strstr(why, quoted))
			return true;
	}
	return false;
}

void knobs_error(const struct knobs *knobs, char *words, size_t words_size)
{
	snprintf(words, words_size, "%s", actmem_error_in(knobs->names |
		 (knobs->limit_bytes ? ACTMEM_NAMES_AS_LIMIT : ACTMEM_NAMES_AS_BUDGET)));
}
