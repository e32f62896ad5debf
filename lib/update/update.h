/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This folder computes elementwise programs on the host's processors: the update of an optimizer,
 * such as AdamW or Lion, whose weights, gradients and state are in host memory.
 *
 * Read this file first. check.c checks a program. steps.h turns it into steps. kernels.h computes
 * the steps for one short block of elements after another, with code for several instruction sets.
 * All values of a block stay in the processor's cache. So each array crosses the memory bus once,
 * as in a loop that was written for this program. run.c divides the arrays among threads. The
 * threads of each node are in threads.h; mode.h sets the floating-point mode of the processor.
 *
 * Arithmetic. All values are float32. Each operation is rounded by itself, to nearest even, and
 * multiplications and additions are not fused. So the result does not depend on the number of
 * threads or on the instruction set. A result that is denormal becomes 0, and a denormal operand
 * counts as 0, as on XLA's CPU backend (see mode.h for the reason). An operation that only moves
 * bits, such as NEG or SELECT, may keep a denormal. The sign and the other bits of a NaN are
 * undefined.
 *
 * Locks: in threads.c only. A forked child has no threads of its parent, and starts its own.
 */
#ifndef LIB_UPDATE_H
#define LIB_UPDATE_H

#include <stddef.h>
#include <stdint.h>

/* The type of an array's elements. */
enum update_type {
	UPDATE_F32,
	UPDATE_BF16,			/* read: widened exactly; written: rounded (ties to even) */
};

/*
 * Operations. A condition is true if it is not 0; a NaN is true. The result of a comparison is 1 or
 * 0. The numbers of the operations are part of the interface of the Python module.
 */
enum update_code {
	UPDATE_ADD,
	UPDATE_SUB,
	UPDATE_MUL,
	UPDATE_DIV,
	UPDATE_SQRT,
	UPDATE_RSQRT,			/* 1 / sqrt(a), rounded twice */
	UPDATE_NEG,
	UPDATE_ABS,
	UPDATE_SIGN,			/* 1, -1, or @a if @a is 0, -0 or NaN */
	UPDATE_MIN,			/* NaN if an operand is NaN; -0 is less than 0 */
	UPDATE_MAX,
	UPDATE_SELECT,			/* @b if the condition @a is true, else @c */
	UPDATE_EQ,
	UPDATE_NE,
	UPDATE_LT,
	UPDATE_LE,
	UPDATE_GT,
	UPDATE_GE,
	UPDATE_AND,
	UPDATE_OR,
	UPDATE_NOT,
	UPDATE_ISFINITE,
	UPDATE_ROUND_BF16,		/* the nearest bfloat16, as a float32 */
	UPDATE_FLOOR,
	UPDATE_CEIL,
	UPDATE_CODES
};

#define UPDATE_VALUES_MAX	64	/* inputs, scalars, constants and temporaries together */
#define UPDATE_ARRAYS_MAX	16	/* maximum number of inputs; also of outputs */
#define UPDATE_OPERATIONS_MAX	1024

/*
 * @to = @code(@a, @b, @c). An operand is the number of a value: inputs have the first numbers, then
 * come scalars, constants, and temporaries. Operations write only temporaries, and may write the
 * same temporary several times. An operand that @code does not use is 0. The Python module passes
 * an array of these structs as an array of int32_t.
 */
struct update_operation {
	int32_t code;			/* enum update_code */
	int32_t to;
	int32_t a, b, c;
};

struct update_program {
	uint32_t input_count;
	uint32_t scalar_count;
	uint32_t constant_count;
	uint32_t output_count;
	uint32_t operation_count;
	const float *constants;
	const struct update_operation *operations;
	const int32_t *outputs;		/* the number of the value that each output stores */
};

/*
 * The elements of an input or output. Writes to an output bypass the caches if its address is a
 * multiple of 64.
 */
struct update_array {
	void *memory;			/* NULL: an input of zeros */
	enum update_type type;
};

/*
 * Checks a program that comes from outside the library. Returns 0, or -EINVAL with an error message
 * in @words.
 */
int update_check(const struct update_program *program, char *words, size_t words_size);

/*
 * Computes elements [0, @count) of all outputs. The program has passed update_check(). No output
 * overlaps an input or another output. Runs on the CPUs of @node that the process may use. If @node
 * is -1, runs on all CPUs that the process may use. The calling thread computes short arrays by
 * itself. Calls for the same node take turns. When the call returns, other threads and devices see
 * the outputs.
 *
 * Returns 0, -ENODEV (the process is not allowed to use any CPU of the node), -EINVAL (the setting
 * ACTMEM_UPDATE_THREADS is invalid), or another negative errno, with an error message in @words.
 * After an error, no output was written.
 */
int update_run(const struct update_program *program, const struct update_array *inputs,
	       const float *scalars, const struct update_array *outputs, uint64_t count, int node,
	       char *words, size_t words_size);

#endif /* LIB_UPDATE_H */
