/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Computes a program. Threads take pieces of the arrays, so a slow core does not delay the others.
 * A thread computes a piece block by block. The values of a block stay in the first level of the
 * cache.
 */
#include <stdatomic.h>
#include <string.h>

#include "update/kernels.h"
#include "update/mode.h"
#include "update/steps.h"
#include "update/threads.h"

/* A core needs about 0.05 ms for a piece, which is longer than a thread needs to wake up. */
#define PIECE_LENGTH	((uint64_t)256 * BLOCK_LENGTH)

struct job {
	const struct update_program *program;
	const struct update_array *inputs, *outputs;
	const struct kernels *kernels;
	struct steps steps;
	uint64_t count;
	_Atomic uint64_t taken;		/* elements in pieces that threads have begun */
	/*
	 * repeated: for each scalar and constant, a block that is filled with copies of it. zeros:
	 * the block of an input without memory.
	 */
	vector repeated[UPDATE_VALUES_MAX][BLOCK_VECTORS];
	vector zeros[BLOCK_VECTORS];
};

static size_t type_bytes(enum update_type type)
{
	return type == UPDATE_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static void *element(const struct update_array *array, uint64_t index)
{
	return (char *)array->memory + index * type_bytes(array->type);
}

static void values_begin(struct values *values, const struct job *job)
{
	const struct update_program *program = job->program;
	uint32_t i, repeated = program->scalar_count + program->constant_count;

	for (i = 0; i < UPDATE_VALUES_MAX; i++)
		values->at[i] = values->room[i];
	for (i = 0; i < repeated; i++)
		values->at[program->input_count + i] = job->repeated[i];
}

static void set_input(struct values *values, const struct job *job, uint32_t input,
		      const void *memory)
{
	values->inputs[input] = memory ?: job->zeros;
	if (!job->steps.is_widened[input])
		values->at[input] = (const vector_at *)values->inputs[input];
}

/*
 * Computes the last elements, which do not fill a block. Works on copies, because the kernels
 * access whole blocks.
 */
static void compute_rest(struct values *values, const struct job *job, uint64_t at, size_t count)
{
	vector in[UPDATE_ARRAYS_MAX][BLOCK_VECTORS], out[UPDATE_ARRAYS_MAX][BLOCK_VECTORS];
	const struct update_array *array;
	uint32_t i;

	for (i = 0; i < job->program->input_count; i++) {
		array = &job->inputs[i];
		memset(in[i], 0, sizeof(in[i]));
		if (array->memory)
			memcpy(in[i], element(array, at), count * type_bytes(array->type));
		set_input(values, job, i, in[i]);
	}
	for (i = 0; i < job->program->output_count; i++)
		values->outputs[i] = (char *)out[i];
	job->kernels->compute(values, &job->steps, 1);
	for (i = 0; i < job->program->output_count; i++) {
		array = &job->outputs[i];
		memcpy(element(array, at), out[i], count * type_bytes(array->type));
	}
}

static void compute_piece(struct values *values, const struct job *job, uint64_t at, uint64_t end)
{
	uint64_t blocks = (end - at) / BLOCK_LENGTH;
	uint32_t i;

	for (i = 0; i < job->program->input_count; i++)
		set_input(values, job, i,
			  job->inputs[i].memory ? element(&job->inputs[i], at) : NULL);
	for (i = 0; i < job->program->output_count; i++)
		values->outputs[i] = element(&job->outputs[i], at);
	job->kernels->compute(values, &job->steps, blocks);
	at += blocks * BLOCK_LENGTH;
	if (at < end)
		compute_rest(values, job, at, end - at);
}

/* Computes pieces until the threads have begun all of them. */
static void compute_pieces(void *data)
{
	struct job *job = data;
	uint64_t at, mode = mode_get();
	struct values values;

	mode_set(MODE_UPDATE);
	values_begin(&values, job);
	for (;;) {
		at = atomic_fetch_add(&job->taken, PIECE_LENGTH);
		if (at >= job->count)
			break;
		compute_piece(&values, job, at,
			      job->count - at < PIECE_LENGTH ? job->count : at + PIECE_LENGTH);
	}
	mode_fence();
	mode_set(mode);
}

static void repeat(vector to[BLOCK_VECTORS], float value)
{
	unsigned int i;

	for (i = 0; i < VECTOR_LENGTH; i++)
		to[0][i] = value;
	for (i = 1; i < BLOCK_VECTORS; i++)
		to[i] = to[0];
}

int update_run(const struct update_program *program, const struct update_array *inputs,
	       const float *scalars, const struct update_array *outputs, uint64_t count, int node,
	       char *words, size_t words_size)
{
	uint64_t pieces = count / PIECE_LENGTH + 1;
	struct job job;
	uint32_t i;

	job.program = program;
	job.inputs = inputs;
	job.outputs = outputs;
	job.kernels = kernels_used();
	steps_fill(&job.steps, program, inputs, outputs);
	job.count = count;
	atomic_init(&job.taken, 0);
	memset(job.zeros, 0, sizeof(job.zeros));
	for (i = 0; i < program->scalar_count; i++)
		repeat(job.repeated[i], scalars[i]);
	for (i = 0; i < program->constant_count; i++)
		repeat(job.repeated[program->scalar_count + i], program->constants[i]);
	if (pieces > 1)
		return threads_run(node, compute_pieces, &job,
				   pieces < UINT32_MAX ? (unsigned int)pieces : UINT32_MAX, words,
				   words_size);
	compute_pieces(&job);
	return 0;
}
