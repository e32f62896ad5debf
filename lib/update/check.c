/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Checks a program. run.c uses the program's counts and value numbers without further checks.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "update/update.h"

static const struct {
	const char *name;
	unsigned int operands;
} codes[UPDATE_CODES] = {
	[UPDATE_ADD] = { "add", 2 },
	[UPDATE_SUB] = { "sub", 2 },
	[UPDATE_MUL] = { "mul", 2 },
	[UPDATE_DIV] = { "div", 2 },
	[UPDATE_SQRT] = { "sqrt", 1 },
	[UPDATE_RSQRT] = { "rsqrt", 1 },
	[UPDATE_NEG] = { "neg", 1 },
	[UPDATE_ABS] = { "abs", 1 },
	[UPDATE_SIGN] = { "sign", 1 },
	[UPDATE_MIN] = { "min", 2 },
	[UPDATE_MAX] = { "max", 2 },
	[UPDATE_SELECT] = { "select", 3 },
	[UPDATE_EQ] = { "eq", 2 },
	[UPDATE_NE] = { "ne", 2 },
	[UPDATE_LT] = { "lt", 2 },
	[UPDATE_LE] = { "le", 2 },
	[UPDATE_GT] = { "gt", 2 },
	[UPDATE_GE] = { "ge", 2 },
	[UPDATE_AND] = { "and", 2 },
	[UPDATE_OR] = { "or", 2 },
	[UPDATE_NOT] = { "not", 1 },
	[UPDATE_ISFINITE] = { "isfinite", 1 },
	[UPDATE_ROUND_BF16] = { "round_bf16", 1 },
	[UPDATE_FLOOR] = { "floor", 1 },
	[UPDATE_CEIL] = { "ceil", 1 },
};

struct check {
	const struct update_program *program;
	uint32_t read_only;			/* number of inputs, scalars and constants */
	bool is_known[UPDATE_VALUES_MAX];	/* the value is set at this point of the program */
	char *words;
	size_t words_size;
};

static int __attribute__((cold, format(printf, 2, 3)))
refuse(const struct check *check, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(check->words, check->words_size, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static int check_count(const struct check *check, const char *what, uint32_t count, uint32_t least,
		       uint32_t most)
{
	if (count >= least && count <= most)
		return 0;
	return refuse(check, "the program has %" PRIu32 " %s, but must have %" PRIu32 " to %"
		      PRIu32, count, what, least, most);
}

/* Checks each count before the sum of the counts, so that the sum cannot overflow. */
static int check_counts(struct check *check)
{
	const struct update_program *program = check->program;
	int error = check_count(check, "inputs", program->input_count, 0, UPDATE_ARRAYS_MAX);

	if (!error)
		error = check_count(check, "outputs", program->output_count, 1, UPDATE_ARRAYS_MAX);
	if (!error)
		error = check_count(check, "operations", program->operation_count, 0,
				    UPDATE_OPERATIONS_MAX);
	if (!error)
		error = check_count(check, "scalars", program->scalar_count, 0, UPDATE_VALUES_MAX);
	if (!error)
		error = check_count(check, "constants", program->constant_count, 0,
				    UPDATE_VALUES_MAX);
	if (error)
		return error;
	check->read_only = program->input_count + program->scalar_count + program->constant_count;
	return check_count(check, "inputs, scalars and constants", check->read_only, 0,
			   UPDATE_VALUES_MAX);
}

static int check_memory(const struct check *check)
{
	const struct update_program *program = check->program;

	if (!program->outputs || (program->operation_count && !program->operations) ||
	    (program->constant_count && !program->constants))
		return refuse(check, "the pointer to the program's operations, constants or outputs is NULL");
	return 0;
}

static int check_operand(const struct check *check, uint32_t index, int32_t value)
{
	const struct update_operation *operation = &check->program->operations[index];

	if (value >= 0 && value < UPDATE_VALUES_MAX && check->is_known[value])
		return 0;
	return refuse(check, "operation %" PRIu32 " (%s) reads value %" PRId32
		      ", which has not been written", index, codes[operation->code].name, value);
}

static int check_operation(struct check *check, uint32_t index)
{
	const struct update_operation *operation = &check->program->operations[index];
	const int32_t operands[] = { operation->a, operation->b, operation->c };
	unsigned int i;
	int error = 0;

	if (operation->code < 0 || operation->code >= UPDATE_CODES)
		return refuse(check, "operation %" PRIu32 " has the code %" PRId32
			      ", but codes are 0 to %d", index, operation->code, UPDATE_CODES - 1);
	for (i = 0; i < 3 && !error; i++) {
		if (i < codes[operation->code].operands)
			error = check_operand(check, index, operands[i]);
		else if (operands[i])
			error = refuse(check, "operation %" PRIu32 " (%s) has %u operands, but operand %u is not 0",
				       index, codes[operation->code].name,
				       codes[operation->code].operands, i);
	}
	if (error)
		return error;
	if (operation->to < (int32_t)check->read_only || operation->to >= UPDATE_VALUES_MAX)
		return refuse(check, "operation %" PRIu32 " (%s) writes value %" PRId32
			      ", but temporaries are values %" PRIu32 " to %d", index,
			      codes[operation->code].name, operation->to, check->read_only,
			      UPDATE_VALUES_MAX - 1);
	check->is_known[operation->to] = true;
	return 0;
}

static int check_outputs(const struct check *check)
{
	const struct update_program *program = check->program;
	uint32_t i;

	for (i = 0; i < program->output_count; i++)
		if (program->outputs[i] < 0 || program->outputs[i] >= UPDATE_VALUES_MAX ||
		    !check->is_known[program->outputs[i]])
			return refuse(check, "output %" PRIu32 " is value %" PRId32
				      ", which has not been written", i, program->outputs[i]);
	return 0;
}

int update_check(const struct update_program *program, char *words, size_t words_size)
{
	struct check check = { program, .words = words, .words_size = words_size };
	int error = check_counts(&check);
	uint32_t i;

	if (!error)
		error = check_memory(&check);
	if (error)
		return error;
	for (i = 0; i < check.read_only; i++)
		check.is_known[i] = true;
	for (i = 0; i < program->operation_count && !error; i++)
		error = check_operation(&check, i);
	return error ? error : check_outputs(&check);
}
