/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Knobs: options that errors tell users to turn. An error has a mark for each, which
 * becomes a name when the error is read: a C program knows a field, a shell a variable,
 * Python a keyword. The handlers for XLA, the preload and the commands link this file too.
 */
#ifndef LIB_BASE_KNOB_H
#define LIB_BASE_KNOB_H

#include <stdbool.h>
#include <stddef.h>

#include "actmem.h"

enum knob {
	/* Options of actmem_open(), up to KNOB_OF_OPTIONS. */
	KNOB_BACKEND,
	KNOB_PAGES,
	KNOB_POLICY,
	KNOB_NODES,
	KNOB_NAME,
	KNOB_ALLOW,
	KNOB_ALLOW_2M,
	KNOB_ALLOW_THP,
	KNOB_ALLOW_4K,
	KNOB_ALLOW_THP_4K,
	KNOB_ALLOW_NODE,
	KNOB_ALLOW_UNLOCKED,
	KNOB_OF_OPTIONS = KNOB_ALLOW_UNLOCKED,
	KNOB_HEAP_GROW,
	KNOB_HEAP_LIMIT,
	KNOB_BUDGET,
	KNOB_SPILL,
	KNOB_SPILL_LIMIT,
	KNOB_SPILL_ALLOW,
	KNOB_SPILL_ALLOW_BUFFERED,
	KNOB_SPILL_ALLOW_MEMORY,
	KNOB_STRICT,
	KNOB_DEVICE_RING,
	KNOB_BLOCK,
	KNOB_CUDA_MIN,
	KNOBS
};

/* Returns the name of a knob; @names: enum actmem_names, with ACTMEM_NAMES_AS_* or without. */
const char *knob_name(enum knob knob, unsigned int names);

/* Returns the name of the knob that has this variable; the variable itself if none has. */
const char *knob_name_of(const char *variable, unsigned int names);

/* Returns what the environment says of a knob, or NULL. */
const char *knob_value(enum knob knob);

/* Whether a variable of the environment is set to other than "" and 0. */
bool variable_is_on(const char *name);

#define KNOB_MARK		'\x01'
#define KNOB_MARK_VARIABLE	'\x02'
#define KNOB_FIRST		'A'

/* The mark of a knob, for the words of fail(). */
#define KNOB(knob)	((const char[]){ KNOB_MARK, KNOB_FIRST + KNOB_##knob, '\0' })

/* The mark of one that the environment has set: a C program knows the variable then. */
#define KNOB_VARIABLE(knob)	\
	((const char[]){ KNOB_MARK_VARIABLE, (char)(KNOB_FIRST + (knob)), '\0' })

/*
 * A program that takes these options from the environment, as it has none of its own, has
 * variables to turn, and no fields: from now on ACTMEM_NAMES_C names those.
 */
void knobs_are_variables(void);

/* Writes @words with names for their marks, as far as they fit. */
void knob_spell(char *text, size_t size, const char *words, unsigned int names);

#endif /* LIB_BASE_KNOB_H */
