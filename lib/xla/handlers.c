/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handlers actmem_put, _take, _tie, _hold and _drop for XLA's CPU platform; see call.h.
 *
 * XLA orders CPU thunks only by their buffers, so the handlers run on any thread and concurrently.
 * The handlers for a GPU, which copy on a stream, are in stream_handlers.c. Both use the same table
 * of blocks.
 */
#include <string.h>

#include "base/base.h"
#include "xla/actmem_xla.h"
#include "xla/call.h"
#include "xla/copy.h"
#include "xla/memory.h"

ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_put(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_tie(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_hold(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_drop(XLA_FFI_CallFrame *frame);

static void put_done(void *block)
{
	saved_filled(block);
}

XLA_FFI_Error *actmem_xla_put(XLA_FFI_CallFrame *frame)
{
	char words[SAVED_WORDS];
	XLA_FFI_Error *failure;
	struct saved *block;
	struct call call = { .origin.is_gpu = 0 };
	int error;

	if (ffi_metadata(frame))
		return NULL;
	failure = call_put(frame, &call);
	if (failure)
		return failure;
	memset(call.token, 0, sizeof(struct token));
	if (!call.origin.examples)
		return NULL;
	error = saved_begin(&call.origin, call.bytes, &block, words);
	if (error)
		return ffi_error(frame->api, ffi_code(error), words);
	memcpy(call.token, &block->token, sizeof(block->token));
	copy_start(frame, memory_waits(), block->fill, call.value, call.bytes, put_done, block);
	return NULL;
}

static void take_done(void *claim)
{
	saved_release(claim);
}

/* Copies @rows, which are one of several parts of a take's value. */
static XLA_FFI_Error *take_part(const XLA_FFI_Api *api, const struct origin *origin,
				const struct rows *rows, char *to, uint64_t bytes)
{
	char words[SAVED_WORDS];
	struct claim *claim;
	int error;

	if (!rows->id) {
		memset(to, 0, bytes);
		return NULL;
	}
	error = saved_claim(rows, bytes, origin, &claim, words);
	if (error)
		return ffi_error(api, ffi_code(error), words);
	if (bytes)
		memcpy(to, claim->memory, bytes);
	saved_release(claim);
	return NULL;
}

XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame)
{
	char words[SAVED_WORDS];
	XLA_FFI_Error *failure;
	struct claim *claim;
	struct call call = { .origin.is_gpu = 0 };
	uint64_t at = 0, row_bytes;
	struct rows rows;
	char *to;
	int error;

	if (ffi_metadata(frame))
		return NULL;
	failure = call_take(frame, &call);
	if (failure)
		return failure;
	if (!call_next_rows(call.token, call.count, &at, &rows))
		return NULL;
	if (at < call.count || !rows.id) {
		row_bytes = call.bytes / call.count;
		to = call.value;
		do {
			failure = take_part(frame->api, &call.origin, &rows, to,
					  rows.count * row_bytes);
			to += rows.count * row_bytes;
		} while (!failure && call_next_rows(call.token, call.count, &at, &rows));
		return failure;
	}
	error = saved_claim(&rows, call.bytes, &call.origin, &claim, words);
	if (error)
		return ffi_error(frame->api, ffi_code(error), words);
	copy_start(frame, memory_waits(), call.value, claim->memory, call.bytes, take_done, claim);
	return NULL;
}

/*
 * Copies the tokens. Handlers on a CPU can read a token at any time, so they need no announcement.
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
