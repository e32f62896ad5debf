/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Names options as those know them who set them from outside. */
#include <stdio.h>
#include <string.h>

#include "base/knob_words.h"

#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

/* The driver has limits too, which are not these. */
static const struct knob_name names[] = {
	{ "spill_limit_bytes", "the spill limit" },
	{ "spill_paths", "directories to spill to" },
	{ "budget_bytes", "the budget" },
	{ "raise limit_bytes", "raise the budget" },
	{ "grow_bytes", "ACTMEM_HEAP_GROW" },
};

static const struct knob_name names_of_limit[] = {
	{ "raise budget_bytes or give spill_paths", "raise it" },
	{ "raise limit_bytes", "raise the heap limit" },
	{ "budget_bytes", "the heap limit" },
	{ "the budget of", "the heap limit of" },
	{ "spill_limit_bytes", "the spill limit" },
	{ "spill_paths", "directories to spill to" },
	{ "grow_bytes", "ACTMEM_HEAP_GROW" },
};

static const struct knob_name *find(const char *at, const struct knob_name *known, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (!strncmp(at, known[i].option, strlen(known[i].option)))
			return &known[i];
	return NULL;
}

void knob_words_by(const struct knob_name *known, size_t count, const char *why, char *words,
		   size_t size)
{
	const struct knob_name *name;
	size_t length = 0;

	while (*why && length + 1 < size) {
		name = find(why, known, count);
		if (!name) {
			words[length++] = *why++;
			continue;
		}
		snprintf(words + length, size - length, "%s", name->knob);
		length += strlen(words + length);
		why += strlen(name->option);
	}
	if (size)
		words[length] = '\0';
}

void knob_words(const char *why, bool is_limit, char *words, size_t size)
{
	if (is_limit)
		knob_words_by(names_of_limit, COUNT(names_of_limit), why, words, size);
	else
		knob_words_by(names, COUNT(names), why, words, size);
}
