/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handlers actmem_put, _take, _tie, _hold, _drop and _update for XLA's CUDA platform; see
 * call.h and update_call.h. Values and tokens are on the device, and all work is done in the order
 * of XLA's stream (stream.h). The handlers do not declare that XLA may record their commands once
 * and run them again, because the commands of actmem_take depend on its token.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "xla/actmem_xla.h"
#include "xla/call.h"
#include "xla/stream.h"
#include "xla/update_call.h"

ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_put_cuda(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_take_cuda(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_tie_cuda(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_hold_cuda(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_drop_cuda(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_update_cuda(XLA_FFI_CallFrame *frame);

_Static_assert(UPDATE_VALUES_MAX <= MAILBOX_TOKENS, "one read must get the operands of an update");

static cuda_pointer on_device(void *address)
{
	return (cuda_pointer)(uintptr_t)address;
}

static XLA_FFI_Error *put_value(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
				const struct call *call)
{
	const XLA_FFI_Api *api = frame->api;
	char words[SAVED_WORDS];
	struct saved *block;
	int error;

	if (!call->origin.examples) {
		error = lane_write_token(lane, stream, on_device(call->token), 0, words);
		return error ? ffi_error(api, ffi_code(error), words) : NULL;
	}
	lane_admit(lane, call->bytes);
	error = saved_begin(&call->origin, call->bytes, &block, words);
	if (error) {
		lane_put_ended(lane, call->bytes);
		return ffi_error(api, ffi_code(error), words);
	}
	/* Write the token before the copy: if the write fails, there is no copy to wait for. */
	error = lane_write_token(lane, stream, on_device(call->token), block->token, words);
	if (error) {
		saved_undo(block);
		lane_put_ended(lane, call->bytes);
	} else {
		error = lane_put(lane, stream, on_device(call->value), block, words);
	}
	return error ? ffi_error(api, ffi_code(error), words) : NULL;
}

static int claim_rows(const struct call *call, const struct rows *rows, uint64_t bytes,
		       struct claim **claim, char *words)
{
	uint64_t before = clock_ns();
	int error = saved_claim(rows, bytes, &call->origin, claim, words);

	TRANSFER_COUNT(call->origin.device, block_wait_ns_total, clock_ns() - before);
	return error;
}

/* Reads the tokens of the call's operand into @tokens. */
static int read_array(struct lane *lane, cuda_stream stream, const struct call *call,
		      struct token *tokens, char *words)
{
	cuda_pointer from = on_device(call->token), parts[MAILBOX_TOKENS];
	uint64_t done = 0;
	unsigned int now;
	int error = 0;

	while (done < call->count && !error) {
		for (now = 0; done + now < call->count && now < MAILBOX_TOKENS; now++)
			parts[now] = from + (done + now) * sizeof(*tokens);
		error = lane_read_tokens(lane, stream, parts, now, tokens + done, words);
		done += now;
	}
	return error;
}

static int read_take_tokens(struct lane *lane, cuda_stream stream, const struct call *call,
			    struct token *tokens, char *words)
{
	bool is_staged = false;

	if (call->count == 1) {
		/* Only blocks of one example are announced. */
		*tokens = (struct token){
			.id = saved_announced(&call->origin, call->number, &is_staged)
		};
		if (tokens->id && lane_may_run_ahead(lane, is_staged))
			return 0;
	}
	return read_array(lane, stream, call, tokens, words);
}

/* Copies @rows, whose length is @bytes, to @to. */
static int take_rows(struct lane *lane, cuda_stream stream, const struct call *call,
		     const struct rows *rows, cuda_pointer to, uint64_t bytes, char *words)
{
	struct claim *claim;
	int error;

	if (!rows->id)
		return lane_clear(lane, stream, to, bytes, words);
	error = claim_rows(call, rows, bytes, &claim, words);
	return error ? error : lane_take(lane, stream, to, claim, bytes, words);
}

static XLA_FFI_Error *take_value(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
				 const struct call *call)
{
	const XLA_FFI_Api *api = frame->api;
	struct token one, *tokens = &one;
	cuda_pointer to = on_device(call->value);
	char words[SAVED_WORDS];
	uint64_t at = 0, row_bytes;
	struct rows rows;
	int error;

	if (!call->count)
		return NULL;
	if (call->count > 1)
		tokens = malloc(call->count * sizeof(*tokens));
	if (!tokens)
		return ffi_error(api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
				 "actmem: no memory for bookkeeping");
	error = read_take_tokens(lane, stream, call, tokens, words);
	row_bytes = call->bytes / call->count;
	while (!error && call_next_rows(tokens, call->count, &at, &rows)) {
		error = take_rows(lane, stream, call, &rows, to, rows.count * row_bytes, words);
		to += rows.count * row_bytes;
	}
	if (tokens != &one)
		free(tokens);
	return error ? ffi_error(api, ffi_code(error), words) : NULL;
}

/* Calls @function for all rows of the operand's tokens. */
static int each_rows(struct lane *lane, cuda_stream stream, const struct call *call,
		     void (*function)(uint64_t id, uint64_t count), char *words)
{
	struct token *tokens = calloc(call->count + 1, sizeof(*tokens));
	struct rows rows;
	uint64_t at = 0;
	int error;

	if (!tokens)
		return saved_fail(words, ENOMEM, "no memory for bookkeeping");
	error = read_array(lane, stream, call, tokens, words);
	while (!error && call_next_rows(tokens, call->count, &at, &rows))
		function(rows.id, rows.count);
	free(tokens);
	return error;
}

/*
 * Announces the blocks that a call of actmem_tie names. First reads their tokens, up to
 * MAILBOX_TOKENS in one wait.
 */
static int announce_takes(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
			  const struct call *call, char *words)
{
	cuda_pointer from[MAILBOX_TOKENS];
	struct token tokens[MAILBOX_TOKENS];
	int32_t numbers[MAILBOX_TOKENS];
	uint64_t next = 0, i;
	unsigned int count;
	void *source, *unused;
	int error = 0;

	while (next < call->count && !error) {
		for (count = 0; next < call->count && count < MAILBOX_TOKENS; next++) {
			if (call->numbers[next] < 0)
				continue;
			call_tokens(frame, next, &source, &unused);
			from[count] = on_device(source);
			numbers[count++] = call->numbers[next];
		}
		if (count)
			error = lane_read_tokens(lane, stream, from, count, tokens, words);
		for (i = 0; i < count && !error; i++)
			if (tokens[i].id && !tokens[i].changed)
				error = saved_announce(tokens[i].id, &call->origin,
						       (uint32_t)numbers[i], words);
	}
	return error;
}

static XLA_FFI_Error *tie_tokens(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
				 const struct call *call)
{
	char words[SAVED_WORDS];
	void *from, *to;
	uint64_t count, i;
	int error = announce_takes(lane, stream, frame, call, words);

	for (i = 0; i < call->count && !error; i++) {
		count = call_tokens(frame, i, &from, &to);
		error = lane_copy_tokens(lane, stream, on_device(to), on_device(from), count, words);
	}
	if (error)
		return ffi_error(frame->api, ffi_code(error), words);
	lane_look_again(lane);
	return NULL;
}

static XLA_FFI_Error *hold_tokens(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
				  const struct call *call)
{
	char words[SAVED_WORDS];
	int error = each_rows(lane, stream, call, saved_reference, words);

	if (!error)
		error = lane_copy_tokens(lane, stream, on_device(ffi_result(frame, 0)->data),
				       on_device(call->token), call->count, words);
	return error ? ffi_error(frame->api, ffi_code(error), words) : NULL;
}

static XLA_FFI_Error *drop_tokens(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
				  const struct call *call)
{
	char words[SAVED_WORDS];
	int error = each_rows(lane, stream, call, saved_unreference, words);

	return error ? ffi_error(frame->api, ffi_code(error), words) : NULL;
}

/*
 * Reads the operands, computes the update, and writes the tokens of the new blocks. XLA's stream is
 * idle during the computation. If a gradient is still being copied to the host, the update waits
 * for that copy.
 */
static XLA_FFI_Error *update_blocks(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
				    const struct call *call)
{
	const struct update_call *update = call->update;
	uint32_t i, count = update->program.output_count;
	struct token operands[UPDATE_VALUES_MAX];
	cuda_pointer from[UPDATE_VALUES_MAX];
	uint64_t ids[UPDATE_ARRAYS_MAX];
	char words[SAVED_WORDS];
	int error;

	for (i = 0; i < update->operand_count; i++)
		from[i] = on_device(update->operands[i]);
	error = lane_read_tokens(lane, stream, from, update->operand_count, operands, words);
	if (!error)
		error = update_job_run(update, operands, ids, words);
	if (error)
		return ffi_error(frame->api, ffi_code(error), words);
	for (i = 0; !error && i < count; i++)
		error = lane_write_token(lane, stream, on_device(update->results[i]), ids[i],
					 words);
	if (!error)
		return NULL;
	for (i = 0; i < count; i++)
		saved_unreference(ids[i], 1);
	return ffi_error(frame->api, ffi_code(error), words);
}

typedef XLA_FFI_Error *read_call(XLA_FFI_CallFrame *frame, struct call *call);
typedef XLA_FFI_Error *do_call(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
			       const struct call *call);

/* Runs a handler: reads its frame, and calls @body with the lane of its stream. */
static XLA_FFI_Error *run_in_lane(XLA_FFI_CallFrame *frame, struct update_call *update,
				  read_call *read, do_call *body)
{
	struct call call = { .origin.is_gpu = 1, .update = update };
	char words[SAVED_WORDS];
	XLA_FFI_Error *failure;
	struct lane *lane;
	void *stream;
	int error;

	if (ffi_metadata(frame))
		return NULL;
	failure = read(frame, &call);
	if (!failure)
		failure = ffi_stream(frame, &stream);
	if (failure)
		return failure;
	lane = lane_enter(call.origin.device, stream, words, &error);
	if (!lane)
		return ffi_error(frame->api, ffi_code(error), words);
	failure = body(lane, stream, frame, &call);
	lane_leave(lane);
	return failure;
}

XLA_FFI_Error *actmem_xla_put_cuda(XLA_FFI_CallFrame *frame)
{
	return run_in_lane(frame, NULL, call_put, put_value);
}

XLA_FFI_Error *actmem_xla_take_cuda(XLA_FFI_CallFrame *frame)
{
	return run_in_lane(frame, NULL, call_take, take_value);
}

XLA_FFI_Error *actmem_xla_tie_cuda(XLA_FFI_CallFrame *frame)
{
	return run_in_lane(frame, NULL, call_tie, tie_tokens);
}

XLA_FFI_Error *actmem_xla_hold_cuda(XLA_FFI_CallFrame *frame)
{
	return run_in_lane(frame, NULL, call_hold, hold_tokens);
}

XLA_FFI_Error *actmem_xla_drop_cuda(XLA_FFI_CallFrame *frame)
{
	return run_in_lane(frame, NULL, call_drop, drop_tokens);
}

static XLA_FFI_Error *read_update(XLA_FFI_CallFrame *frame, struct call *call)
{
	struct update_call *update = call->update;
	XLA_FFI_Error *failure = update_call_read(frame, update);

	update->origin.is_gpu = 1;
	call->origin = update->origin;
	return failure;
}

XLA_FFI_Error *actmem_xla_update_cuda(XLA_FFI_CallFrame *frame)
{
	struct update_call update = { .operand_count = 0 };

	return run_in_lane(frame, &update, read_update, update_blocks);
}
