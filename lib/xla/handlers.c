// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The handlers actmem_put and actmem_take for XLA's CPU platform; see call.h.
 *
 * CPU thunks are ordered by their buffers alone, so both run on any thread and at
 * the same time as others. Those of a GPU, which copy on a stream, are in
 * stream_handlers.c; the table of blocks is shared.
 */
#include <string.h>

#include "actmem_xla.h"
#include "call.h"
#include "checksum.h"
#include "copy.h"
#include "memory.h"

ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_put(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame);

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
		if (checksum(block->destination, block->bytes) !=
		    block->checksum)
			error = call_damaged(api, block);
		saved_checksum_compared();
	}
	saved_release(block);
	return error;
}

XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame)
{
	char words[SAVED_WORDS];
	XLA_FFI_Error *error;
	struct saved *block;
	struct call call = { .origin.is_gpu = 0 };
	uint64_t token;
	int ret;

	if (ffi_metadata(frame))
		return NULL;
	error = call_take(frame, &call);
	if (error)
		return error;
	memcpy(&token, call.token, sizeof(token));
	ret = saved_claim(token, call.bytes, &call.origin, &block, words);
	if (ret)
		return ffi_error(frame->api, ffi_code(ret), words);
	block->destination = call.value;
	return copy_start(frame, memory_waits(), call.value, block->held,
			  call.bytes, take_done, block);
}
