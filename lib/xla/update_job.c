/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Computes an update whose operands have been read; see update_call.h. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "xla/call.h"
#include "xla/forked.h"
#include "xla/generation.h"
#include "xla/memory.h"
#include "xla/update_call.h"

struct update_job {
	const struct update_call *call;
	const struct token *operands;
	struct saved_look like;		/* properties of the first input that is not zeros */
	uint64_t count;			/* number of elements of each block */
	unsigned int claimed, begun;
	struct claim *claims[UPDATE_ARRAYS_MAX];	/* NULL: the input is zeros */
	struct saved *blocks[UPDATE_ARRAYS_MAX];
};

static const XLA_FFI_DataType xla_types[] = {
	[UPDATE_F32] = XLA_FFI_DataType_F32,
	[UPDATE_BF16] = XLA_FFI_DataType_BF16,
};

static pthread_mutex_t updating = PTHREAD_MUTEX_INITIALIZER;

static bool updating_is_free(void)
{
	return forked_lock_is_free(&updating);
}
FORKED_WATCH(updating_is_free)

/* Returns the length in bytes of a block whose type is entry @i of the call's types. */
static uint64_t block_bytes(const struct update_job *job, uint32_t i)
{
	return job->count * ffi_type_bytes(xla_types[job->call->types[i]]);
}

/*
 * Checks that input @i has the dimensions and layout of the other inputs. An input with id 0 is all
 * zeros, and needs no check.
 */
static int look_at_input(struct update_job *job, uint32_t i, char *words)
{
	XLA_FFI_DataType type = xla_types[job->call->types[i]];
	uint64_t id = job->operands[i].id;
	struct saved_look look;
	struct shape wanted;
	int error;

	if (!id)
		return 0;
	error = saved_look(id, &look, words);
	if (error)
		return error;
	if (!job->count) {
		job->like = look;
		job->count = look.bytes / ffi_type_bytes(type);
	}
	call_set_type(&wanted, &job->like.shape, type);
	if (look.shape.hash != wanted.hash || look.bytes != block_bytes(job, i) ||
	    look.layout != job->like.layout)
		return saved_fail(words, EINVAL,
				  "the value saved at %s is %s (%" PRIu64
				  " bytes), but the update needs %s (%" PRIu64
				  " bytes), with the sharding of its other values",
				  saved_site_name(id), look.shape.text, look.bytes, wanted.text,
				  block_bytes(job, i));
	return 0;
}

static int look_at_inputs(struct update_job *job, char *words)
{
	uint32_t i;
	int error;

	for (i = 0; i < job->call->program.input_count; i++) {
		error = look_at_input(job, i, words);
		if (error)
			return error;
	}
	if (!job->count)
		return saved_fail(words, EINVAL,
				  "an update needs a value with elements, but all of its %" PRIu32
				  " values are zeros or empty", job->call->program.input_count);
	return 0;
}

/* Fails if the update needs more than the budget: the update would wait for memory forever. */
static int check_budget(const struct update_job *job, char *words)
{
	const struct update_program *program = &job->call->program;
	const struct update_site *site = &job->call->sites[0];
	uint64_t budget = memory_budget(), bytes = 0;
	uint32_t i;

	for (i = 0; i < program->input_count + program->output_count; i++)
		bytes += block_bytes(job, i);
	if (!budget || bytes <= budget)
		return 0;
	return saved_fail(words, ENOMEM,
			  "the update of %.*s needs %" PRIu64
			  " bytes at once, for old and new values, but the budget is %" PRIu64
			  " bytes: raise ACTMEM_BUDGET, or store the weights of each layer by actmem.jax.offload_params()",
			  (int)site->length, site->name, bytes, budget);
}

static int begin_blocks(struct update_job *job, char *words)
{
	const struct update_call *call = job->call;
	struct origin origin = call->origin;
	uint32_t i, type;
	int error;

	origin.examples = 1;
	origin.layout = job->like.layout;
	for (i = 0; i < call->program.output_count; i++) {
		type = call->program.input_count + i;
		origin.site = call->sites[i].name;
		origin.site_length = call->sites[i].length;
		origin.bounded = call->bounded[i];
		origin.many = call->many[i];
		call_set_type(&origin.shape, &job->like.shape, xla_types[call->types[type]]);
		error = saved_begin(&origin, block_bytes(job, type), &job->blocks[i], words);
		if (error)
			return error;
		job->begun++;
	}
	return 0;
}

static int claim_inputs(struct update_job *job, char *words)
{
	const struct update_call *call = job->call;
	struct origin taker = call->origin;
	struct rows rows;
	uint32_t i;
	int error;

	taker.layout = job->like.layout;
	for (i = 0; i < call->program.input_count; i++) {
		rows = (struct rows){ .id = job->operands[i].id,
				      .first = job->operands[i].example, .count = 1,
				      .changed = job->operands[i].changed };
		if (rows.id) {
			taker.ends = call->ends[i];
			call_set_type(&taker.shape, &job->like.shape, xla_types[call->types[i]]);
			error = saved_claim(&rows, block_bytes(job, i), &taker, &job->claims[i],
					    words);
			if (error)
				return error;
		}
		job->claimed++;
	}
	return 0;
}

static int compute(const struct update_job *job, char *words)
{
	const struct update_call *call = job->call;
	struct update_array inputs[UPDATE_ARRAYS_MAX], outputs[UPDATE_ARRAYS_MAX];
	uint32_t i, input_count = call->program.input_count;
	float scalars[UPDATE_VALUES_MAX];
	char why[SAVED_WORDS / 2];
	int error;

	for (i = 0; i < input_count; i++) {
		inputs[i].memory = job->claims[i] ? (void *)job->claims[i]->memory : NULL;
		inputs[i].type = (enum update_type)call->types[i];
	}
	for (i = 0; i < call->program.output_count; i++) {
		outputs[i].memory = job->blocks[i]->fill;
		outputs[i].type = (enum update_type)call->types[input_count + i];
	}
	for (i = 0; i < call->program.scalar_count; i++)
		memcpy(&scalars[i], &job->operands[input_count + i], sizeof(scalars[i]));
	error = update_run(&call->program, inputs, scalars, outputs, job->count,
			   memory_node(job->blocks[0]->key), why, sizeof(why));
	return error ? saved_fail(words, -error, "the update of %.*s: %s",
				  (int)call->sites[0].length, call->sites[0].name, why) : 0;
}

static void release_inputs(struct update_job *job)
{
	while (job->claimed--)
		if (job->claims[job->claimed])
			saved_release(job->claims[job->claimed]);
}

/*
 * Runs the update. Reserves memory for the new blocks before it claims the old ones. Until the old
 * blocks are claimed, the store can still spill them, and use their memory for the new blocks.
 */
static int run_alone(struct update_job *job, uint64_t *ids, char *words)
{
	uint32_t i;
	int error = look_at_inputs(job, words);

	if (!error)
		error = check_budget(job, words);
	if (!error)
		error = begin_blocks(job, words);
	if (!error)
		error = claim_inputs(job, words);
	if (!error)
		error = compute(job, words);
	if (error) {
		release_inputs(job);
		while (job->begun--)
			saved_undo(job->blocks[job->begun]);
		return error;
	}
	for (i = 0; i < job->begun; i++) {
		ids[i] = job->blocks[i]->token;
		saved_filled(job->blocks[i]);
	}
	release_inputs(job);
	return 0;
}

int update_job_run(const struct update_call *call, const struct token *operands, uint64_t *ids,
		   char *words)
{
	struct update_job job = { .call = call, .operands = operands };
	int error = saved_check(words);

	if (error)
		return error;
	pthread_mutex_lock(&updating);
	error = run_alone(&job, ids, words);
	pthread_mutex_unlock(&updating);
	return error;
}
