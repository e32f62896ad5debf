// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reads, checks and names the options of the store of blocks; see knobs.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"
#include "xla/knobs.h"

#define SPILL_LIMIT_LEAST	(UINT64_C(2) << 20)
#define RING_BYTES		(UINT64_C(512) << 20)
#define RING_LEAST		(UINT64_C(128) << 10)
#define NAME(knob)		knob_name(KNOB_##knob, knobs->names)

static const char *knob_value(enum knob knob)
{
	return getenv(knob_name(knob, ACTMEM_NAMES_VARIABLES));
}

/* "64M" and the like; false if the variable holds no such thing. */
static int bytes_from_environment(enum knob knob, uint64_t *bytes)
{
	const char *text = knob_value(knob);

	return !text || !*text || size_from_text(text, bytes);
}

/* One more directory, of @length bytes. */
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

static void forget_directories(struct knobs *knobs)
{
	while (knobs->spill_path_count)
		free(knobs->spill_paths[--knobs->spill_path_count]);
}

/* Separated as those of PATH are. */
static int directories_from_environment(struct knobs *knobs)
{
	const char *at = knob_value(KNOB_SPILL);
	size_t length;
	int ret = 0;

	if (!at || !*at)
		return 0;
	for (; !ret; at += length + 1) {
		length = strcspn(at, ":");
		ret = add_directory(knobs, at, length);
		if (!at[length])
			break;
	}
	if (ret)
		forget_directories(knobs);
	return ret;
}

static int add_directories(struct knobs *knobs, const char *const *paths, uint32_t count)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; !ret && i < count; i++)
		ret = add_directory(knobs, paths[i], strlen(paths[i]));
	if (ret)
		forget_directories(knobs);
	return ret;
}

int knobs_take(struct knobs *knobs, const struct actmem_xla_options *options)
{
	int ret;

	knobs_forget(knobs);
	if (options->size < sizeof(*options))
		return -EINVAL;
	if (options->spill_allow & ~SPILL_ALLOW_FLAGS &&
	    options->spill_allow != ACTMEM_XLA_SPILL_ALLOW_NOTHING)
		return -EINVAL;
	ret = add_directories(knobs, options->spill_paths, options->spill_path_count);
	if (ret)
		return ret;
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
	forget_directories(knobs);
	memset(knobs, 0, sizeof(*knobs));
}

static int take_sizes(struct knobs *knobs, char *words, size_t words_size)
{
	const struct {
		enum knob knob;
		uint64_t *bytes;
	} sizes[] = {
		{ KNOB_HEAP_GROW, &knobs->grow_bytes },
		{ KNOB_HEAP_LIMIT, &knobs->limit_bytes },
		{ KNOB_BUDGET, &knobs->budget_bytes },
		{ KNOB_SPILL_LIMIT, &knobs->spill_limit_bytes },
		{ KNOB_DEVICE_RING, &knobs->ring_bytes },
	};
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (*sizes[i].bytes ||
		    bytes_from_environment(sizes[i].knob, sizes[i].bytes))
			continue;
		snprintf(words, words_size,
			 "%s is '%s'; it may be a number of bytes, such as 268435456 or 256M",
			 knob_name(sizes[i].knob, knobs->names), knob_value(sizes[i].knob));
		return -EINVAL;
	}
	return 0;
}

static int take_allowed(struct knobs *knobs, char *words, size_t words_size)
{
	if (knobs->spill_allow || spill_allow_from_environment(&knobs->spill_allow)) {
		knobs->spill_allow &= SPILL_ALLOW_FLAGS;
		if (knob_is_on(KNOB_STRICT))
			knobs->spill_allow |= ACTMEM_STORE_STRICT;
		return 0;
	}
	snprintf(words, words_size, "%s is '%s'; it may be " SPILL_ALLOW_CHOICE, NAME(SPILL_ALLOW),
		 knob_value(KNOB_SPILL_ALLOW));
	return -EINVAL;
}

static int check_together(const struct knobs *knobs, char *words, size_t words_size)
{
	int length = 0;

	if (knobs->budget_bytes && knobs->limit_bytes)
		length = snprintf(words, words_size,
				  "%s and %s are both set; the budget is a limit by itself: leave the other out",
				  NAME(BUDGET), NAME(HEAP_LIMIT));
	else if (!knobs->budget_bytes && knobs->spill_path_count)
		length = snprintf(words, words_size,
				  "there is no budget beyond which to spill; set %s, or leave %s out",
				  NAME(BUDGET), NAME(SPILL));
	else if (knobs->spill_limit_bytes && !knobs->spill_path_count)
		length = snprintf(words, words_size,
				  "there is no directory to spill to; set %s, or leave %s out",
				  NAME(SPILL), NAME(SPILL_LIMIT));
	else if (knobs->spill_limit_bytes && knobs->spill_limit_bytes < SPILL_LIMIT_LEAST)
		length = snprintf(words, words_size, "%s is %" PRIu64
				  " bytes, under 2 MiB, which is the least; raise it",
				  NAME(SPILL_LIMIT), knobs->spill_limit_bytes);
	else if (knobs->ring_bytes < RING_LEAST)
		length = snprintf(words, words_size, "%s is %" PRIu64
				  " bytes, under 128 KiB, which is the least; raise it",
				  NAME(DEVICE_RING), knobs->ring_bytes);
	return length ? -EINVAL : 0;
}

static int take_directories(struct knobs *knobs, const struct knobs *given, char *words,
			    size_t words_size)
{
	int ret;

	if (given->spill_path_count)
		ret = add_directories(knobs, (const char *const *)given->spill_paths,
				      given->spill_path_count);
	else
		ret = directories_from_environment(knobs);
	if (ret == -EINVAL)
		snprintf(words, words_size,
			 "%s is '%s'; it may be 1 to %d directories with a ':' between them",
			 NAME(SPILL), knob_value(KNOB_SPILL), KNOBS_SPILL_MAX);
	else if (ret)
		snprintf(words, words_size, "no memory for bookkeeping");
	return ret;
}

int knobs_complete(struct knobs *knobs, const struct knobs *given, unsigned int names,
		   char *words, size_t words_size)
{
	int ret;

	knobs_forget(knobs);
	*knobs = *given;
	knobs->names = names;
	knobs->spill_path_count = 0;		/* the paths are copied below */
	ret = take_sizes(knobs, words, words_size);
	if (!ret && !knobs->ring_bytes)
		knobs->ring_bytes = RING_BYTES;
	if (!ret)
		ret = take_directories(knobs, given, words, words_size);
	if (!ret)
		ret = take_allowed(knobs, words, words_size);
	if (!ret)
		ret = check_together(knobs, words, words_size);
	if (ret)
		knobs_forget(knobs);
	return ret;
}

int knobs_are_of_directory(const struct knobs *knobs, const char *why)
{
	char quoted[PATH_MAX + 1];
	uint32_t i;

	/* The library's words quote it, made absolute. */
	for (i = 0; i < knobs->spill_path_count; i++) {
		snprintf(quoted, sizeof(quoted), "%s'", knobs->spill_paths[i]);
		if (strstr(why, quoted))
			return 1;
	}
	return 0;
}

void knobs_error(const struct knobs *knobs, char *words, size_t words_size)
{
	snprintf(words, words_size, "%s", actmem_error_in(knobs->names |
		 (knobs->limit_bytes ? ACTMEM_NAMES_AS_LIMIT : ACTMEM_NAMES_AS_BUDGET)));
}
