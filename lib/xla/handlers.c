// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
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

static XLA_FFI_Error *put_done(const XLA_FFI_Api *api, void *data)
{
	saved_filled(data);
	return NULL;
}

XLA_FFI_Error *actmem_xla_put(XLA_FFI_CallFrame *frame)
{
	char words[SAVED_WORDS];
	XLA_FFI_Error *error;
	struct saved *block;
	struct call call = { .origin.is_gpu = 0 };
	int ret;

	if (ffi_metadata(frame))
		return NULL;
	error = call_put(frame, &call);
	if (error)
		return error;
	memset(call.token, 0, sizeof(struct token));
	if (!call.origin.examples)
		return NULL;
	ret = saved_begin(&call.origin, call.bytes, &block, words);
	if (ret)
		return ffi_error(frame->api, ffi_code(ret), words);
	memcpy(call.token, &block->token, sizeof(block->token));
	if (saved_checksum()) {
		block->checksum = checksum(call.value, call.bytes);
		block->has_checksum = 1;
	}
	return copy_start(frame, memory_waits(), block->fill, call.value,
			  call.bytes, put_done, block);
}

static XLA_FFI_Error *take_done(const XLA_FFI_Api *api, void *data)
{
	struct saved *block = data;
	XLA_FFI_Error *error = NULL;

	if (block->has_checksum) {
		/* A take that is alone and copied the whole block checks its own copy. */
		if (checksum(block->destination ? block->destination : block->held,
			     block->bytes) != block->checksum)
			error = call_damaged(api, block);
		saved_checksum_compared();
	}
	saved_release(block);
	return error;
}

/* Copies @rows, which are one of several parts of a take's value. */
static XLA_FFI_Error *take_part(const XLA_FFI_Api *api, const struct origin *origin,
				const struct rows *rows, char *to, uint64_t bytes)
{
	char words[SAVED_WORDS];
	struct saved *block;
	int ret;

	if (!rows->id) {
		memset(to, 0, bytes);
		return NULL;
	}
	ret = saved_claim(rows, bytes, origin, &block, words);
	if (ret)
		return ffi_error(api, ffi_code(ret), words);
	if (bytes)
		memcpy(to, (const char *)block->held + saved_offset(block, rows), bytes);
	return take_done(api, block);
}

XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame)
{
	char words[SAVED_WORDS];
	XLA_FFI_Error *error;
	struct saved *block;
	struct call call = { .origin.is_gpu = 0 };
	uint64_t at = 0, row_bytes;
	struct rows rows;
	char *to;
	int ret;

	if (ffi_metadata(frame))
		return NULL;
	error = call_take(frame, &call);
	if (error)
		return error;
	if (!call_next_rows(call.token, call.count, &at, &rows))
		return NULL;
	if (at < call.count || !rows.id) {
		row_bytes = call.bytes / call.count;
		to = call.value;
		do {
			error = take_part(frame->api, &call.origin, &rows, to,
					  rows.count * row_bytes);
			to += rows.count * row_bytes;
		} while (!error && call_next_rows(call.token, call.count, &at, &rows));
		return error;
	}
	ret = saved_claim(&rows, call.bytes, &call.origin, &block, words);
	if (ret)
		return ffi_error(frame->api, ffi_code(ret), words);
	if (!block->readers && rows.count == block->examples)
		block->destination = call.value;
	return copy_start(frame, memory_waits(), call.value,
			  (const char *)block->held + saved_offset(block, &rows), call.bytes,
			  take_done, block);
}

/*
 * Copies the tokens. Handlers on a CPU can read a token at any time, so they need no announcement.
 */
XLA_FFI_Error *actmem_xla_tie(XLA_FFI_CallFrame *frame)
{
	struct call call = { .origin.is_gpu = 0 };
	XLA_FFI_Error *error;
	void *from, *to;
	uint64_t count, i;

	if (ffi_metadata(frame))
		return NULL;
	error = call_tie(frame, &call);
	for (i = 0; !error && i < call.count; i++) {
		count = call_tokens(frame, i, &from, &to);
		memcpy(to, from, count * sizeof(struct token));
	}
	return error;
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
	XLA_FFI_Error *error;

	if (ffi_metadata(frame))
		return NULL;
	error = call_hold(frame, &call);
	if (!error) {
		each_rows(&call, saved_hold);
		memcpy(ffi_result(frame, 0)->data, call.token,
		       call.count * sizeof(struct token));
	}
	return error;
}

XLA_FFI_Error *actmem_xla_drop(XLA_FFI_CallFrame *frame)
{
	struct call call = { .origin.is_gpu = 0 };
	XLA_FFI_Error *error;

	if (ffi_metadata(frame))
		return NULL;
	error = call_drop(frame, &call);
	if (!error)
		each_rows(&call, saved_end);
	return error;
}
