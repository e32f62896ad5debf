/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The table of knobs (options). Replaces the marks in error messages, which stand for knobs, with
 * the knobs' names (knob.h).
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "config/knob.h"

#define NAMES_MASK	0xffU

/*
 * If an interface has no name for a knob, messages use the name of the knob's environment variable.
 * Exception: if `actmem replay` has no name for a knob but `actmem run` has one, messages of
 * `actmem replay` use the name in `actmem run`.
 */
#define NAME_OR(name, more, other)	(sizeof(name) > 1 ? name more : other)
#define NAMES(variable, value, c, run, python, replay)					\
	.names = {									\
		[ACTMEM_NAMES_C] = NAME_OR(c, "", variable value),			\
		[ACTMEM_NAMES_VARIABLES] = variable value,				\
		[ACTMEM_NAMES_RUN] = NAME_OR(run, " (" variable ")", variable value),	\
		[ACTMEM_NAMES_PYTHON] = NAME_OR(python, " (" variable ")", variable value), \
		[ACTMEM_NAMES_REPLAY] = NAME_OR(replay, "",				\
						NAME_OR(run, " (" variable ")", variable value)), \
	}
#define VARIABLE_ROW(id, c, run, python, replay, ...)					\
	[KNOB_##id] = { NAMES("ACTMEM_" #id, "", c, run, python, replay),		\
			.variable = KNOB_##id, __VA_ARGS__ },
#define VALUE_ROW(id, of, value, ...)						\
	[KNOB_##id] = { NAMES("ACTMEM_" #of, "=" value, __VA_ARGS__), .variable = KNOB_##of },

const struct knob_info knob_table[KNOBS] = {
	KNOB_TABLE(VARIABLE_ROW)
	KNOB_VALUES(VALUE_ROW)
	/* Only C programs can set this knob. */
	[KNOB_BLOCK] = { NAMES("block_bytes", "", "", "", "", ""), .variable = KNOB_BLOCK },
};

const char *knob_name(enum knob knob, unsigned int names)
{
	unsigned int by = names & NAMES_MASK;

	if (knob == KNOB_BUDGET && names & ACTMEM_NAMES_AS_LIMIT)
		knob = KNOB_HEAP_LIMIT;
	else if (knob == KNOB_HEAP_LIMIT && names & ACTMEM_NAMES_AS_BUDGET)
		knob = KNOB_BUDGET;
	return knob_table[knob].names[by <= ACTMEM_NAMES_REPLAY ? by : ACTMEM_NAMES_C];
}

static atomic_bool are_variables;

void knobs_are_variables(void)
{
	atomic_store_explicit(&are_variables, true, memory_order_relaxed);
}

/*
 * Returns the kind of name for @knob in a message for a C program: the environment variable or the
 * name in C. @mark is the character that stands before the knob in the message.
 */
static unsigned int names_in_c(char mark, unsigned int knob)
{
	bool is_variable = mark == KNOB_MARK_VARIABLE ||
			   (knob_table[knob_table[knob].variable].parts & PART_OPEN &&
			    atomic_load_explicit(&are_variables, memory_order_relaxed));

	return is_variable ? ACTMEM_NAMES_VARIABLES : ACTMEM_NAMES_C;
}

void knob_spell(char *text, size_t size, const char *message, unsigned int names)
{
	unsigned int knob, by;
	size_t used = 0;
	bool is_mark;

	for (; *message && used + 1 < size; message++) {
		is_mark = *message == KNOB_MARK || *message == KNOB_MARK_VARIABLE;
		/* A message that was cut off can end in half a mark. */
		if (is_mark && !message[1])
			break;
		knob = (unsigned char)message[1] - (unsigned int)KNOB_FIRST;
		if (!is_mark || knob >= KNOBS) {
			text[used++] = *message;
			continue;
		}
		by = names == ACTMEM_NAMES_C ? names_in_c(*message, knob) : names;
		snprintf(text + used, size - used, "%s", knob_name(knob, by));
		used += strlen(text + used);
		message++;
	}
	if (size)
		text[used] = '\0';
}
