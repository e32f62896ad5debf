/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Joins operations of a program; see steps.h.
 *
 * A temporary may be written several times. So the operation that wrote an operand (its writer)
 * identifies the operand. Inputs, scalars and constants have the writer NONE.
 */
#include <stdbool.h>

#include "update/steps.h"

#define NONE	UINT16_MAX

struct join {
	const struct update_program *program;
	/*
	 * For each operation: the writers of its first two operands, and the number of uses of its
	 * result.
	 */
	uint16_t writers[UPDATE_OPERATIONS_MAX][2];
	uint16_t uses[UPDATE_OPERATIONS_MAX];
	bool is_joined[UPDATE_OPERATIONS_MAX];	/* joined to a later operation */
	bool has_joined[UPDATE_OPERATIONS_MAX];	/* an earlier operation is joined to it */
	struct step steps[UPDATE_OPERATIONS_MAX];
	/* The last writer of each value, at the current operation. */
	uint16_t last[UPDATE_VALUES_MAX];
};

static void forget_writers(struct join *join)
{
	uint32_t i;

	for (i = 0; i < UPDATE_VALUES_MAX; i++)
		join->last[i] = NONE;
}

static uint16_t use(struct join *join, int32_t value)
{
	uint16_t writer = join->last[value];

	if (writer != NONE)
		join->uses[writer]++;
	return writer;
}

/*
 * Counts the uses of each result. An operand that its operation does not use is 0, so it counts as
 * a use of value 0.
 */
static void count_uses(struct join *join)
{
	const struct update_operation *operation;
	uint32_t i;

	forget_writers(join);
	for (i = 0; i < join->program->operation_count; i++) {
		operation = &join->program->operations[i];
		join->writers[i][0] = use(join, operation->a);
		join->writers[i][1] = use(join, operation->b);
		use(join, operation->c);
		join->last[operation->to] = (uint16_t)i;
	}
	for (i = 0; i < join->program->output_count; i++)
		use(join, join->program->outputs[i]);
}

/*
 * Returns true if @value still has the content that @writer wrote and operation @index read. If
 * operation @index itself has overwritten the content, this does not matter, because a joined
 * operation writes nothing.
 */
static bool is_kept(const struct join *join, uint16_t index, int32_t value, uint16_t writer)
{
	return join->last[value] == writer || join->last[value] == index;
}

/*
 * Returns the operation that wrote @value, if it can be joined: its result has no other use, its
 * operands still have the same values, and no operation is joined to it. Otherwise returns NULL.
 */
static const struct update_operation *find_joinable(const struct join *join, int32_t value)
{
	uint16_t writer = join->last[value];
	const struct update_operation *operation;

	if (writer == NONE || join->uses[writer] != 1 || join->has_joined[writer])
		return NULL;
	operation = &join->program->operations[writer];
	if (!is_kept(join, writer, operation->a, join->writers[writer][0]) ||
	    !is_kept(join, writer, operation->b, join->writers[writer][1]))
		return NULL;
	return operation;
}

static bool is_linked(const struct update_operation *operation)
{
	return operation && operation->code < LINKED_CODES;
}

static bool is_of(const struct update_operation *operation, enum update_code code)
{
	return operation && operation->code == (int32_t)code;
}

/* Returns true if the value is a scalar or a constant, so that all of its vectors are equal. */
static bool is_repeated(const struct update_program *program, int32_t value)
{
	int32_t first = (int32_t)program->input_count;

	return value >= first &&
	       value < first + (int32_t)(program->scalar_count + program->constant_count);
}

static struct step step_of(int32_t code, int32_t to, int32_t a, int32_t b, int32_t c, int32_t d)
{
	return (struct step){ (uint8_t)code, (uint8_t)to, (uint8_t)a, (uint8_t)b, (uint8_t)c,
			      (uint8_t)d };
}

static void swap(uint8_t *one, uint8_t *other)
{
	uint8_t value = *one;

	*one = *other;
	*other = value;
}

/*
 * Makes a step load scalars and constants once, if possible. @first_code: the operation that the
 * step applies to @a and @b.
 */
static struct step repeat_operands(const struct update_program *program, struct step step,
				   int32_t first_code)
{
	bool is_commutative = first_code == UPDATE_ADD || first_code == UPDATE_MUL;
	bool has_four = step.code == STEP_MUL_MUL_ADD || step.code == STEP_MUL_MUL_SUB;

	if (is_commutative && is_repeated(program, step.a))
		swap(&step.a, &step.b);
	if (has_four && is_repeated(program, step.c))
		swap(&step.c, &step.d);
	if (is_repeated(program, step.b) && (!has_four || is_repeated(program, step.d)))
		step.code += STEP_REPEATED;
	return step;
}

/*
 * Returns the step for (a F b) G c, where @linked is a F b and @operation is G. If @is_second,
 * returns the step for c G (a F b).
 */
static struct step link_step(const struct update_operation *operation,
			     const struct update_operation *linked, bool is_second)
{
	int32_t code = STEP_LINKED + LINKED_CODES * linked->code + operation->code;

	if (is_second && operation->code == UPDATE_SUB)
		code = STEP_SUB_OF + linked->code;
	else if (is_second && operation->code == UPDATE_DIV)
		code = STEP_DIV_OF + linked->code;
	return step_of(code, operation->to, linked->a, linked->b,
		       is_second ? operation->a : operation->b, 0);
}

/*
 * Returns the step of an operation, and sets @joined to the earlier operations that the step
 * includes.
 */
static struct step choose_step(const struct join *join, const struct update_operation *operation,
			       const struct update_operation *joined[2])
{
	const struct update_operation *first = find_joinable(join, operation->a);
	const struct update_operation *second = find_joinable(join, operation->b);
	int32_t to = operation->to, code = operation->code;
	struct step step;

	joined[0] = joined[1] = NULL;
	if ((code == UPDATE_ADD || code == UPDATE_SUB) && is_of(first, UPDATE_MUL) &&
	    is_of(second, UPDATE_MUL)) {
		joined[0] = first;
		joined[1] = second;
		step = step_of(code == UPDATE_ADD ? STEP_MUL_MUL_ADD : STEP_MUL_MUL_SUB, to,
			       first->a, first->b, second->a, second->b);
	} else if (code == UPDATE_ADD && is_of(first, UPDATE_SQRT)) {
		joined[0] = first;
		step = step_of(STEP_SQRT_ADD, to, first->a, operation->b, 0, 0);
	} else if (is_linked(operation) && (is_linked(first) || is_linked(second))) {
		joined[0] = is_linked(first) ? first : second;
		step = link_step(operation, joined[0], !is_linked(first));
	} else {
		step = step_of(code, to, operation->a, operation->b, operation->c, 0);
	}
	return repeat_operands(join->program, step, joined[0] ? joined[0]->code : code);
}

/*
 * Chooses the step of each operation. If an operation is joined to a later one, its step is unused.
 */
static void choose_steps(struct join *join)
{
	const struct update_operation *operations = join->program->operations, *joined[2];
	uint32_t i, k;

	count_uses(join);
	forget_writers(join);
	for (i = 0; i < join->program->operation_count; i++) {
		join->steps[i] = choose_step(join, &operations[i], joined);
		for (k = 0; k < 2 && joined[k]; k++) {
			join->is_joined[joined[k] - operations] = true;
			join->has_joined[i] = true;
		}
		join->last[operations[i].to] = (uint16_t)i;
	}
}

static void add(struct steps *steps, struct step step)
{
	steps->step[steps->count++] = step;
}

/* Adds steps that store those outputs whose value operation @writer wrote last. */
static void add_stores(struct steps *steps, const struct join *join,
		       const struct update_array *outputs, uint16_t writer)
{
	const int32_t *values = join->program->outputs;
	uint32_t i;
	int32_t code;

	for (i = 0; i < steps->output_count; i++) {
		if (join->last[values[i]] != writer)
			continue;
		code = (uintptr_t)outputs[i].memory % VECTOR_BYTES ? STEP_STORE_F32 :
		       STEP_STREAM_F32;
		code += outputs[i].type == UPDATE_BF16;
		add(steps, step_of(code, (int32_t)i, values[i], 0, 0, 0));
	}
}

static void add_loads(struct steps *steps)
{
	int32_t i;

	for (i = 0; i < (int32_t)steps->input_count; i++)
		if (steps->is_widened[i])
			add(steps, step_of(STEP_WIDEN, i, i, 0, 0, 0));
}

static uint32_t block_bytes(const struct update_array *array)
{
	return array->type == UPDATE_BF16 ? BLOCK_LENGTH * sizeof(uint16_t) :
	       BLOCK_LENGTH * sizeof(float);
}

void steps_fill(struct steps *steps, const struct update_program *program,
		const struct update_array *inputs, const struct update_array *outputs)
{
	struct join join = { .program = program };
	uint32_t i;

	steps->input_count = program->input_count;
	steps->output_count = program->output_count;
	steps->count = 0;
	for (i = 0; i < program->input_count; i++) {
		steps->input_bytes[i] = inputs[i].memory ? block_bytes(&inputs[i]) : 0;
		steps->is_widened[i] = inputs[i].memory && inputs[i].type == UPDATE_BF16;
	}
	for (i = 0; i < program->output_count; i++)
		steps->output_bytes[i] = block_bytes(&outputs[i]);
	choose_steps(&join);
	add_loads(steps);
	add_stores(steps, &join, outputs, NONE);
	for (i = 0; i < program->operation_count; i++) {
		if (join.is_joined[i])
			continue;
		add(steps, join.steps[i]);
		add_stores(steps, &join, outputs, (uint16_t)i);
	}
}
