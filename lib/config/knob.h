/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Knobs: the options that users set and that error messages name. Inside the library, error
 * messages contain a mark, a placeholder of two characters, in place of each knob's name. When a
 * program reads a message, the library replaces each mark by a name: a field for a C program, a
 * variable for a shell, a keyword for Python. The library that `actmem run` preloads (the preload),
 * the commands and the XLA handlers are also linked with knob.c.
 */
#ifndef LIB_CONFIG_KNOB_H
#define LIB_CONFIG_KNOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actmem.h"
#include "config/table.h"

#define KNOB_ID(id, ...)	KNOB_##id,

enum knob {
	KNOB_TABLE(KNOB_ID)
	KNOB_VARIABLES,			/* above: variables; below: values of these variables */
	KNOB_BEFORE_VALUES = KNOB_VARIABLES - 1,
	KNOB_VALUES(KNOB_ID)
	KNOB_BLOCK,
	KNOBS
};

/* The part of the project that reads a variable: the library, the preload or the Python module. */
enum knob_part {
	PART_OPEN = 1 << 0,		/* actmem_open() without options */
	PART_PYTHON = 1 << 1,		/* the Python module, for its memory */
	PART_CUDA = 1 << 2,		/* the preload's CUDA mode */
	PART_MALLOC = 1 << 3,		/* the preload's malloc mode */
	PART_PRELOAD = 1 << 4,		/* the preload, to choose a mode */
	PART_START = 1 << 5,		/* the Python module, for anything except memory */
	PART_LIBRARY = 1 << 6,		/* the library, even if a program passes options */
};

enum knob_kind {
	KNOB_TEXT,			/* text, checked by the part that reads it */
	KNOB_SIZE,			/* bytes, such as 64M */
	KNOB_NUMBER,
	KNOB_SWITCH,			/* 1 or 0 */
	KNOB_WORD,			/* one of @words; value: @first plus the word's index */
	KNOB_WORDS,			/* several of @words, as bits; "any" stands for all */
};

struct knob_info {
	const char *names[ACTMEM_NAMES_REPLAY + 1];	/* index: enum actmem_names */
	enum knob variable;		/* variable of a value (ALLOW_2M); else this knob */
	enum knob_kind kind;
	unsigned int parts;		/* enum knob_part */
	const char *words;		/* list or format; SIZE, NUMBER: word for UINT64_MAX */
	unsigned int first;
	const char *unit;		/* unit of a NUMBER, such as "seconds" */
	uint64_t least, most;		/* if @most is 0, there is no maximum */
	bool or_zero;			/* 0 is allowed, although 0 is less than @least */
	const char *initial;		/* the value if the variable is not set; NULL: 0 */
	const char *about;		/* sentences for actmem(1), or NULL */
};

extern const struct knob_info knob_table[KNOBS];

/*
 * Returns the name of a knob. @names is a value of enum actmem_names, with or without
 * ACTMEM_NAMES_AS_*.
 */
const char *knob_name(enum knob knob, unsigned int names);

#define KNOB_MARK		'\x01'
#define KNOB_MARK_VARIABLE	'\x02'
#define KNOB_FIRST		'A'
#define KNOB_MARKED(mark, knob)	((const char[]){ mark, (char)(KNOB_FIRST + (knob)), '\0' })

/*
 * Marks that stand for knobs in error messages. KNOB_VARIABLE() is for a knob that the user set as
 * a variable.
 */
#define KNOB(knob)		KNOB_MARKED(KNOB_MARK, KNOB_##knob)
#define KNOB_VARIABLE(knob)	KNOB_MARKED(KNOB_MARK_VARIABLE, knob)

/*
 * After this call, messages with ACTMEM_NAMES_C show the PART_OPEN knobs as variables, not as C
 * fields. Called if a program passes no options to actmem_open(), because the user of such a
 * program sets these knobs as variables.
 */
void knobs_are_variables(void);

/*
 * Copies @message to @text, and replaces each mark by a name. If the result is longer than @size,
 * cuts off the rest.
 */
void knob_spell(char *text, size_t size, const char *message, unsigned int names);

#endif /* LIB_CONFIG_KNOB_H */
