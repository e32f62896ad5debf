/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Computes a program. Threads take pieces of the arrays, so a slow core does not delay the others.
 * A piece is computed in chunks: each operation of the program runs over the whole chunk, whose
 * values stay in the first two levels of the cache.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "update/kernels.h"
#include "update/mode.h"
#include "update/threads.h"

/* 2 KiB for each value: a dozen live values fit in 32 KiB. */
#define CHUNK_VECTORS	32
#define CHUNK_LENGTH	(CHUNK_VECTORS * VECTOR_LENGTH)
/* A core needs about 0.1 ms for a piece, which is more than a thread needs to wake up. */
#define PIECE_LENGTH	((uint64_t)64 * CHUNK_LENGTH)

struct job {
	const struct update_program *program;
	const struct update_array *inputs, *outputs;
	const struct kernels *kernels;
	uint64_t count;
	_Atomic uint64_t taken;		/* elements that a thread has begun */
	/* Scalars and constants, each as a vector that repeats. A NULL input repeats @zeros. */
	vector repeated[UPDATE_VALUES_MAX];
	vector zeros;
};

/* The values of one chunk. */
struct chunk {
	const struct job *job;
	struct operand values[UPDATE_VALUES_MAX];
	vector room[UPDATE_VALUES_MAX][CHUNK_VECTORS];	/* of temporaries and widened inputs */
};

static size_t type_bytes(enum update_type type)
{
	return type == UPDATE_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static void *element(const struct update_array *array, uint64_t index)
{
	return (char *)array->memory + index * type_bytes(array->type);
}

static void chunk_begin(struct chunk *chunk, const struct job *job)
{
	const struct update_program *program = job->program;
	uint32_t i, inputs = program->input_count;
	uint32_t repeated = program->scalar_count + program->constant_count;

	chunk->job = job;
	for (i = 0; i < UPDATE_VALUES_MAX; i++)
		chunk->values[i] = (struct operand){ chunk->room[i], 1 };
	for (i = 0; i < inputs; i++)
		if (!job->inputs[i].memory)
			chunk->values[i] = (struct operand){ &job->zeros, 0 };
	for (i = 0; i < repeated; i++)
		chunk->values[inputs + i] = (struct operand){ &job->repeated[i], 0 };
}

static void chunk_load(struct chunk *chunk, const struct update_array *inputs, uint64_t at,
		       size_t vectors)
{
	const struct job *job = chunk->job;
	uint32_t i;

	for (i = 0; i < job->program->input_count; i++) {
		if (!inputs[i].memory)
			continue;
		if (inputs[i].type == UPDATE_BF16)
			job->kernels->widen(chunk->room[i], element(&inputs[i], at), vectors);
		else
			chunk->values[i].at = element(&inputs[i], at);
	}
}

static void chunk_compute(struct chunk *chunk, size_t vectors)
{
	const struct update_program *program = chunk->job->program;
	const struct kernels *kernels = chunk->job->kernels;
	const struct update_operation *operation;
	uint32_t i;

	for (i = 0; i < program->operation_count; i++) {
		operation = &program->operations[i];
		kernels->operations[operation->code](chunk->room[operation->to], (struct operand[]){
			chunk->values[operation->a], chunk->values[operation->b],
			chunk->values[operation->c] }, vectors);
	}
}

static void chunk_store(const struct chunk *chunk, const struct update_array *outputs, uint64_t at,
			size_t vectors)
{
	const struct job *job = chunk->job;
	const struct operand *value;
	uint32_t i;

	for (i = 0; i < job->program->output_count; i++) {
		value = &chunk->values[job->program->outputs[i]];
		if (outputs[i].type == UPDATE_BF16)
			job->kernels->store_bf16(element(&outputs[i], at), value, vectors);
		else
			job->kernels->store_f32(element(&outputs[i], at), value, vectors);
	}
}

/* Computes fewer elements than a vector has, through copies, so as not to read or write beyond. */
static void compute_rest(struct chunk *chunk, uint64_t at, size_t count)
{
	const struct job *job = chunk->job;
	const struct update_program *program = job->program;
	struct update_array inputs[UPDATE_ARRAYS_MAX], outputs[UPDATE_ARRAYS_MAX];
	vector in[UPDATE_ARRAYS_MAX] = { 0 }, out[UPDATE_ARRAYS_MAX];
	uint32_t i;

	for (i = 0; i < program->input_count; i++) {
		inputs[i] = job->inputs[i];
		if (!inputs[i].memory)
			continue;
		inputs[i].memory = memcpy(&in[i], element(&job->inputs[i], at),
					  count * type_bytes(inputs[i].type));
	}
	for (i = 0; i < program->output_count; i++)
		outputs[i] = (struct update_array){ &out[i], job->outputs[i].type };
	chunk_load(chunk, inputs, 0, 1);
	chunk_compute(chunk, 1);
	chunk_store(chunk, outputs, 0, 1);
	for (i = 0; i < program->output_count; i++)
		memcpy(element(&job->outputs[i], at), &out[i],
		       count * type_bytes(outputs[i].type));
}

static void compute_piece(struct chunk *chunk, uint64_t at, uint64_t end)
{
	const struct job *job = chunk->job;
	size_t vectors;

	for (; end - at >= VECTOR_LENGTH; at += vectors * VECTOR_LENGTH) {
		vectors = CHUNK_VECTORS;
		if (end - at < CHUNK_LENGTH)
			vectors = (end - at) / VECTOR_LENGTH;
		chunk_load(chunk, job->inputs, at, vectors);
		chunk_compute(chunk, vectors);
		chunk_store(chunk, job->outputs, at, vectors);
	}
	if (end > at)
		compute_rest(chunk, at, end - at);
}

/* Computes pieces until other threads have begun all that are left. */
static void compute_pieces(void *data)
{
	struct job *job = data;
	uint64_t at, mode = mode_get();
	struct chunk chunk;

	mode_set(MODE_UPDATE);
	chunk_begin(&chunk, job);
	for (;;) {
		at = atomic_fetch_add(&job->taken, PIECE_LENGTH);
		if (at >= job->count)
			break;
		compute_piece(&chunk, at,
			      job->count - at < PIECE_LENGTH ? job->count : at + PIECE_LENGTH);
	}
	mode_fence();
	mode_set(mode);
}

static void repeat(vector *to, float value)
{
	unsigned int i;

	for (i = 0; i < VECTOR_LENGTH; i++)
		(*to)[i] = value;
}

int update_run(const struct update_program *program, const struct update_array *inputs,
	       const float *scalars, const struct update_array *outputs, uint64_t count, int node,
	       char *words, size_t words_size)
{
	struct job job = { .program = program, .inputs = inputs, .outputs = outputs,
			   .kernels = kernels_used(), .count = count };
	uint64_t pieces = count / PIECE_LENGTH + 1;
	uint32_t i;

	for (i = 0; i < program->scalar_count; i++)
		repeat(&job.repeated[i], scalars[i]);
	for (i = 0; i < program->constant_count; i++)
		repeat(&job.repeated[program->scalar_count + i], program->constants[i]);
	if (pieces > 1)
		return threads_run(node, compute_pieces, &job,
				   pieces < UINT32_MAX ? (unsigned int)pieces : UINT32_MAX, words,
				   words_size);
	compute_pieces(&job);
	return 0;
}
