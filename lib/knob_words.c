/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Names options as those know them who set them from outside. */
#include <stdio.h>
#include <string.h>

#include "knob_words.h"

#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

struct name {
	const char *option;
	const char *knob;
};

/* The driver has limits too, which are not these. */
static const struct name names[] = {
	{ "spill_limit_bytes", "the spill limit" },
	{ "spill_paths", "directories to spill to" },
	{ "budget_bytes", "the budget" },
	{ "raise limit_bytes", "raise the budget" },
	{ "grow_bytes", "ACTMEM_HEAP_GROW" },
};

static const struct name names_of_limit[] = {
	{ "raise budget_bytes or give spill_paths", "raise it" },
	{ "raise limit_bytes", "raise the heap limit" },
	{ "budget_bytes", "the heap limit" },
	{ "the budget of", "the heap limit of" },
};

static const struct name *find(const char *at, const struct name *known, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (!strncmp(at, known[i].option, strlen(known[i].option)))
			return &known[i];
	return NULL;
}

void knob_words(const char *why, bool is_limit, char *words, size_t size)
{
	const struct name *name;
	size_t length = 0;

	while (*why && length + 1 < size) {
		name = is_limit ? find(why, names_of_limit, COUNT(names_of_limit)) : NULL;
		if (!name)
			name = find(why, names, COUNT(names));
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
