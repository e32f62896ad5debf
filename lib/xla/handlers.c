/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handlers actmem_put, _take, _tie, _hold, _drop and _update for XLA's CPU platform; see call.h
 * and update_call.h. Also actmem_ghost, a handler without effect, for all platforms.
 *
 * XLA orders CPU thunks only by their buffers, so the handlers run on any thread and concurrently.
 * The handlers for a GPU, which copy on a stream, are in stream_handlers.c. All handlers use the
 * same table of blocks (saved.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "xla/actmem_xla.h"
#include "xla/call.h"
#include "xla/copy.h"
#include "xla/memory.h"
#include "xla/update_call.h"
#include "xla/waiting.h"

ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_put(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_tie(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_hold(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_drop(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_update(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_ghost(XLA_FFI_CallFrame *frame);

static void put_done(void *block)
{
	saved_filled(block);
}

static XLA_FFI_Error *put_begin(const XLA_FFI_Api *api, const struct call *call,
				struct saved **block)
{
	char words[SAVED_WORDS];
	int error = saved_begin(&call->origin, call->bytes, block, words);

	if (error)
		return ffi_error(api, ffi_code(error), words);
	memcpy(call->token, &(*block)->token, sizeof((*block)->token));
	return NULL;
}

static XLA_FFI_Error *put_alone(const XLA_FFI_Api *api, const struct call *call)
{
	struct saved *block;
	XLA_FFI_Error *failure = put_begin(api, call, &block);

	if (failure)
		return failure;
	if (call->bytes)
		memcpy(block->fill, call->value, call->bytes);
	saved_filled(block);
	return NULL;
}

XLA_FFI_Error *actmem_xla_put(XLA_FFI_CallFrame *frame)
{
	struct call call = { .origin.is_gpu = 0 };
	XLA_FFI_Error *failure;
	struct saved *block;

	if (ffi_metadata(frame))
		return NULL;
	failure = call_put(frame, &call);
	if (failure)
		return failure;
	memset(call.token, 0, sizeof(struct token));
	if (!call.origin.examples)
		return NULL;
	if (memory_waits())
		return waiting_run(frame, &call, put_alone);
	failure = put_begin(frame->api, &call, &block);
	if (!failure)
		copy_start(frame, block->fill, call.value, call.bytes, put_done, block);
	return failure;
}

static void take_done(void *claim)
{
	saved_release(claim);
}

static XLA_FFI_Error *take_begin(const XLA_FFI_Api *api, const struct call *call,
				 const struct rows *rows, uint64_t bytes, struct claim **claim)
{
	char words[SAVED_WORDS];
	int error = saved_claim(rows, bytes, &call->origin, claim, words);

	return error ? ffi_error(api, ffi_code(error), words) : NULL;
}

/* Copies the examples @rows of a block to @to, or zeroes @to if @rows has no block. */
static XLA_FFI_Error *take_part(const XLA_FFI_Api *api, const struct call *call,
				const struct rows *rows, char *to, uint64_t bytes)
{
	XLA_FFI_Error *failure;
	struct claim *claim;

	if (!rows->id) {
		memset(to, 0, bytes);
		return NULL;
	}
	failure = take_begin(api, call, rows, bytes, &claim);
	if (failure)
		return failure;
	if (bytes)
		memcpy(to, claim->memory, bytes);
	saved_release(claim);
	return NULL;
}

static XLA_FFI_Error *take_alone(const XLA_FFI_Api *api, const struct call *call)
{
	XLA_FFI_Error *failure = NULL;
	uint64_t at = 0, row_bytes;
	char *to = call->value;
	struct rows rows;

	while (!failure && call_next_rows(call->token, call->count, &at, &rows)) {
		row_bytes = call->bytes / call->count;
		failure = take_part(api, call, &rows, to, rows.count * row_bytes);
		to += rows.count * row_bytes;
	}
	return failure;
}

XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame)
{
	struct call call = { .origin.is_gpu = 0 };
	XLA_FFI_Error *failure;
	struct claim *claim;
	struct rows rows;
	uint64_t at = 0;

	if (ffi_metadata(frame))
		return NULL;
	failure = call_take(frame, &call);
	if (failure || !call_next_rows(call.token, call.count, &at, &rows))
		return failure;
	if (memory_waits())
		return waiting_run(frame, &call, take_alone);
	if (at < call.count || !rows.id)
		return take_alone(frame->api, &call);
	failure = take_begin(frame->api, &call, &rows, call.bytes, &claim);
	if (!failure)
		copy_start(frame, call.value, claim->memory, call.bytes, take_done, claim);
	return failure;
}

/*
 * Copies the tokens. Does not announce takes, because on a CPU, actmem_take can read its tokens
 * without waiting.
 */
XLA_FFI_Error *actmem_xla_tie(XLA_FFI_CallFrame *frame)
{
	struct call call = { .origin.is_gpu = 0 };
	XLA_FFI_Error *failure;
	void *from, *to;
	uint64_t count, i;

	if (ffi_metadata(frame))
		return NULL;
	failure = call_tie(frame, &call);
	for (i = 0; !failure && i < call.count; i++) {
		count = call_tokens(frame, i, &from, &to);
		memcpy(to, from, count * sizeof(struct token));
	}
	return failure;
}

static void each_rows(const struct call *call, void (*function)(uint64_t id, uint64_t count))
{
	struct rows rows;
	uint64_t at = 0;

	while (call_next_rows(call->token, call->count, &at, &rows))
		function(rows.id, rows.count);
}

XLA_FFI_Error *actmem_xla_hold(XLA_FFI_CallFrame *frame)
{
	struct call call = { .origin.is_gpu = 0 };
	XLA_FFI_Error *failure;

	if (ffi_metadata(frame))
		return NULL;
	failure = call_hold(frame, &call);
	if (!failure) {
		each_rows(&call, saved_reference);
		memcpy(ffi_result(frame, 0)->data, call.token,
		       call.count * sizeof(struct token));
	}
	return failure;
}

XLA_FFI_Error *actmem_xla_drop(XLA_FFI_CallFrame *frame)
{
	struct call call = { .origin.is_gpu = 0 };
	XLA_FFI_Error *failure;

	if (ffi_metadata(frame))
		return NULL;
	failure = call_drop(frame, &call);
	if (!failure)
		each_rows(&call, saved_unreference);
	return failure;
}

static XLA_FFI_Error *update_alone(const XLA_FFI_Api *api, const struct call *call)
{
	struct update_call *update = call->update;
	struct token operands[UPDATE_VALUES_MAX];
	uint64_t ids[UPDATE_ARRAYS_MAX];
	char words[SAVED_WORDS];
	uint32_t i;
	int error;

	for (i = 0; i < update->operand_count; i++)
		memcpy(&operands[i], update->operands[i], sizeof(operands[i]));
	error = update_job_run(update, operands, ids, words);
	for (i = 0; !error && i < update->program.output_count; i++)
		*update->results[i] = (struct token){ .id = ids[i] };
	free(update);
	return error ? ffi_error(api, ffi_code(error), words) : NULL;
}

XLA_FFI_Error *actmem_xla_update(XLA_FFI_CallFrame *frame)
{
	struct call call = { .origin.is_gpu = 0 };
	XLA_FFI_Error *failure;

	if (ffi_metadata(frame))
		return NULL;
	call.update = calloc(1, sizeof(*call.update));
	if (!call.update)
		return ffi_error(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
				 "actmem: no memory for bookkeeping");
	failure = update_call_read(frame, call.update);
	if (failure) {
		free(call.update);
		return failure;
	}
	/* An update has its own threads. A thread of XLA must not wait for these threads. */
	return waiting_run(frame, &call, update_alone);
}

/*
 * Does nothing. The result, called a ghost, is an array without bytes. XLA does not replace the
 * ghost by a constant, because the ghost is the result of a call.
 */
XLA_FFI_Error *actmem_xla_ghost(XLA_FFI_CallFrame *frame)
{
	ffi_metadata(frame);
	return NULL;
}
