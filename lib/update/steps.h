/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The steps of a program, which are repeated for each block of elements. Most steps compute one
 * operation of the program, or two or three operations that are joined. An operation can be joined
 * to the operation that uses its result, if exactly one does. A joined step loads and stores fewer
 * values. Other steps read inputs and write outputs.
 */
#ifndef LIB_UPDATE_STEPS_H
#define LIB_UPDATE_STEPS_H

#include <stdbool.h>

#include "update/update.h"

#define VECTOR_BYTES	64
#define VECTOR_LENGTH	(VECTOR_BYTES / sizeof(float))

/*
 * The length of a block, in vectors and in elements. Each step computes one block at once. The
 * processor begins the next steps, and the next block, before a step has ended, so it reads and
 * writes memory while it computes. With longer blocks, the processor cannot look that far ahead.
 * With shorter blocks, it spends more time between steps.
 */
#define BLOCK_VECTORS	8
#define BLOCK_LENGTH	(BLOCK_VECTORS * VECTOR_LENGTH)

/* The number of operations that can be linked with each other: ADD, SUB, MUL and DIV. */
#define LINKED_CODES	4

/*
 * Codes below UPDATE_CODES are the codes of operations. Operands @a to @d are values, unless stated
 * otherwise.
 */
enum step_code {
	/* For operations F and G, code STEP_LINKED + 4 F + G: (a F b) G c, each rounded. */
	STEP_LINKED = UPDATE_CODES,
	STEP_SUB_OF = STEP_LINKED + LINKED_CODES * LINKED_CODES,	/* + F: c - (a F b) */
	STEP_DIV_OF = STEP_SUB_OF + LINKED_CODES,			/* + F: c / (a F b) */
	STEP_MUL_MUL_ADD = STEP_DIV_OF + LINKED_CODES,			/* (a b) + (c d) */
	STEP_MUL_MUL_SUB,
	STEP_SQRT_ADD,			/* sqrt(a) + b */
	STEP_WIDEN,			/* @a: a bfloat16 input, @to: its value */
	STEP_STORE_F32,			/* @to: an output */
	STEP_STORE_BF16,
	STEP_STREAM_F32,		/* like STEP_STORE_F32, but bypasses the caches */
	STEP_STREAM_BF16,
	/* Added to the code of a step if operands @b and @d are scalars or constants. */
	STEP_REPEATED,
};

#define STEPS_MAX	(UPDATE_OPERATIONS_MAX + 2 * UPDATE_ARRAYS_MAX)

struct step {
	uint8_t code, to, a, b, c, d;
};

struct steps {
	uint32_t input_count, output_count, count;
	/* Bytes from one block to the next; 0: an input without memory. */
	uint32_t input_bytes[UPDATE_ARRAYS_MAX], output_bytes[UPDATE_ARRAYS_MAX];
	bool is_widened[UPDATE_ARRAYS_MAX];	/* the input is bfloat16: STEP_WIDEN converts it */
	struct step step[STEPS_MAX];
};

/* Fills @steps from a program that passed update_check(). */
void steps_fill(struct steps *steps, const struct update_program *program,
		const struct update_array *inputs, const struct update_array *outputs);

#endif /* LIB_UPDATE_STEPS_H */
