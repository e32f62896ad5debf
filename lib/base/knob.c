/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The names of knobs, and words with marks for them. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/knob.h"

#define NAMES_MASK	0xffU
#define NAMES_COUNT	(ACTMEM_NAMES_REPLAY + 1)

/*
 * In the order of enum actmem_names. A knob without a name there goes by its variable;
 * `actmem replay` has most names of `actmem run`.
 */
static const char *const knob_names[KNOBS][NAMES_COUNT] = {
	[KNOB_BACKEND] = { "backend", "ACTMEM_BACKEND", "--backend (ACTMEM_BACKEND)",
		"backend= (ACTMEM_BACKEND)" },
	[KNOB_PAGES] = { "pages", "ACTMEM_PAGES", "--pages (ACTMEM_PAGES)",
		"pages= (ACTMEM_PAGES)" },
	[KNOB_POLICY] = { "policy", "ACTMEM_POLICY", "--policy (ACTMEM_POLICY)",
		"policy= (ACTMEM_POLICY)", "ACTMEM_POLICY" },
	[KNOB_NODES] = { "nodes", "ACTMEM_NODES", "--nodes (ACTMEM_NODES)",
		"nodes= (ACTMEM_NODES)" },
	[KNOB_NAME] = { "heap_name", "ACTMEM_NAME", "--name (ACTMEM_NAME)",
		"name= (ACTMEM_NAME)", "ACTMEM_NAME" },
	[KNOB_ALLOW] = { "allow", "ACTMEM_ALLOW", "--allow (ACTMEM_ALLOW)",
		"allow= (ACTMEM_ALLOW)" },
	[KNOB_ALLOW_2M] = { "ACTMEM_ALLOW_2M", "ACTMEM_ALLOW=2m",
		"--allow 2m (ACTMEM_ALLOW)", "allow=\"2m\" (ACTMEM_ALLOW)" },
	[KNOB_ALLOW_THP] = { "ACTMEM_ALLOW_THP", "ACTMEM_ALLOW=thp",
		"--allow thp (ACTMEM_ALLOW)", "allow=\"thp\" (ACTMEM_ALLOW)" },
	[KNOB_ALLOW_4K] = { "ACTMEM_ALLOW_4K", "ACTMEM_ALLOW=4k",
		"--allow 4k (ACTMEM_ALLOW)", "allow=\"4k\" (ACTMEM_ALLOW)" },
	[KNOB_ALLOW_THP_4K] = { "ACTMEM_ALLOW_THP, ACTMEM_ALLOW_4K", "ACTMEM_ALLOW=thp,4k",
		"--allow thp,4k (ACTMEM_ALLOW)", "allow=\"thp,4k\" (ACTMEM_ALLOW)" },
	[KNOB_ALLOW_NODE] = { "ACTMEM_ALLOW_NODE", "ACTMEM_ALLOW=node",
		"--allow node (ACTMEM_ALLOW)", "allow=\"node\" (ACTMEM_ALLOW)" },
	[KNOB_ALLOW_UNLOCKED] = { "ACTMEM_ALLOW_UNLOCKED", "ACTMEM_ALLOW=unlocked",
		"--allow unlocked (ACTMEM_ALLOW)", "allow=\"unlocked\" (ACTMEM_ALLOW)" },
	/* Regions of `actmem replay` are as long as its budget, up to a length. */
	[KNOB_HEAP_GROW] = { "grow_bytes", "ACTMEM_HEAP_GROW",
		"--heap-grow (ACTMEM_HEAP_GROW)", "heap_grow= (ACTMEM_HEAP_GROW)", "--budget" },
	[KNOB_HEAP_LIMIT] = { "limit_bytes", "ACTMEM_HEAP_LIMIT",
		"--heap-limit (ACTMEM_HEAP_LIMIT)", "heap_limit= (ACTMEM_HEAP_LIMIT)",
		"--budget" },
	[KNOB_BUDGET] = { "budget_bytes", "ACTMEM_BUDGET", "--budget (ACTMEM_BUDGET)",
		"budget= (ACTMEM_BUDGET)", "--budget" },
	[KNOB_SPILL] = { "spill_paths", "ACTMEM_SPILL", "--spill (ACTMEM_SPILL)",
		"spill= (ACTMEM_SPILL)", "--spill" },
	[KNOB_SPILL_LIMIT] = { "spill_limit_bytes", "ACTMEM_SPILL_LIMIT",
		"--spill-limit (ACTMEM_SPILL_LIMIT)", "spill_limit= (ACTMEM_SPILL_LIMIT)" },
	[KNOB_SPILL_ALLOW] = { "flags", "ACTMEM_SPILL_ALLOW",
		"--spill-allow (ACTMEM_SPILL_ALLOW)", "spill_allow= (ACTMEM_SPILL_ALLOW)" },
	[KNOB_SPILL_ALLOW_BUFFERED] = { "ALLOW_BUFFERED", "ACTMEM_SPILL_ALLOW=buffered",
		"--spill-allow buffered (ACTMEM_SPILL_ALLOW)",
		"spill_allow=\"buffered\" (ACTMEM_SPILL_ALLOW)", "--allow-buffered" },
	[KNOB_SPILL_ALLOW_MEMORY] = { "ALLOW_MEMORY", "ACTMEM_SPILL_ALLOW=memory",
		"--spill-allow memory (ACTMEM_SPILL_ALLOW)",
		"spill_allow=\"memory\" (ACTMEM_SPILL_ALLOW)", "--allow-memory" },
	[KNOB_STRICT] = { "STRICT", "ACTMEM_STRICT=1", "--strict (ACTMEM_STRICT)",
		"ACTMEM_STRICT=1", "ACTMEM_STRICT=1" },
	[KNOB_DEVICE_RING] = { NULL, "ACTMEM_DEVICE_RING", "--device-ring (ACTMEM_DEVICE_RING)",
		"device_ring= (ACTMEM_DEVICE_RING)" },
	[KNOB_BLOCK] = { "block_bytes", "block_bytes", NULL, NULL, "--block" },
	[KNOB_CUDA_MIN] = { NULL, "ACTMEM_CUDA_MIN", "--cuda-min (ACTMEM_CUDA_MIN)" },
};

const char *knob_name(enum knob knob, unsigned int names)
{
	unsigned int by = names & NAMES_MASK;

	if (knob == KNOB_BUDGET && names & ACTMEM_NAMES_AS_LIMIT)
		knob = KNOB_HEAP_LIMIT;
	else if (knob == KNOB_HEAP_LIMIT && names & ACTMEM_NAMES_AS_BUDGET)
		knob = KNOB_BUDGET;
	if (by >= NAMES_COUNT)
		by = ACTMEM_NAMES_C;
	if (by == ACTMEM_NAMES_REPLAY && !knob_names[knob][by])
		by = ACTMEM_NAMES_RUN;
	return knob_names[knob][by] ?: knob_names[knob][ACTMEM_NAMES_VARIABLES];
}

const char *knob_name_of(const char *variable, unsigned int names)
{
	unsigned int knob;

	for (knob = 0; knob < KNOBS; knob++)
		if (!strcmp(knob_names[knob][ACTMEM_NAMES_VARIABLES], variable))
			return knob_name(knob, names);
	return variable;
}

bool variable_is_on(const char *name)
{
	const char *text = getenv(name);

	return text && *text && strcmp(text, "0");
}

const char *knob_value(enum knob knob)
{
	return getenv(knob_names[knob][ACTMEM_NAMES_VARIABLES]);
}

static atomic_bool are_variables;

void knobs_are_variables(void)
{
	atomic_store_explicit(&are_variables, true, memory_order_relaxed);
}

/* What C knows the option by that is marked in this way. */
static unsigned int names_in_c(char mark, unsigned int knob)
{
	bool is_variable = mark == KNOB_MARK_VARIABLE ||
			   (knob <= KNOB_OF_OPTIONS &&
			    atomic_load_explicit(&are_variables, memory_order_relaxed));

	return is_variable ? ACTMEM_NAMES_VARIABLES : ACTMEM_NAMES_C;
}

void knob_spell(char *text, size_t size, const char *words, unsigned int names)
{
	unsigned int knob, by;
	size_t used = 0;
	bool is_mark;

	for (; *words && used + 1 < size; words++) {
		is_mark = *words == KNOB_MARK || *words == KNOB_MARK_VARIABLE;
		/* Words that were too long may end in half a mark. */
		if (is_mark && !words[1])
			break;
		knob = (unsigned char)words[1] - (unsigned int)KNOB_FIRST;
		if (!is_mark || knob >= KNOBS) {
			text[used++] = *words;
			continue;
		}
		by = names == ACTMEM_NAMES_C ? names_in_c(*words, knob) : names;
		snprintf(text + used, size - used, "%s", knob_name(knob, by));
		used += strlen(text + used);
		words++;
	}
	if (size)
		text[used] = '\0';
}
