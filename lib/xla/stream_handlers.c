// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The handlers actmem_put, actmem_take and actmem_announce for XLA's CUDA platform; see
 * call.h. Values and tokens are on the device, and all is done in the order of the stream
 * that XLA calls with (stream.h). No trait is claimed: what a take does depends on its
 * token, so that its commands cannot be recorded once and run again.
 */
#include "actmem_xla.h"
#include "call.h"
#include "checksum.h"
#include "clock.h"
#include "stream.h"

ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_put_cuda(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_take_cuda(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_announce_cuda(XLA_FFI_CallFrame *frame);

static cuda_pointer on_device(void *address)
{
	return (cuda_pointer)(uintptr_t)address;
}

static XLA_FFI_Error *put(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
			  const struct call *call)
{
	const XLA_FFI_Api *api = frame->api;
	char words[SAVED_WORDS];
	struct saved *block;
	int ret;

	lane_admit(lane, call->bytes);
	ret = saved_begin(&call->origin, call->bytes, &block, words);
	if (ret) {
		lane_put_ended(lane, call->bytes);
		return ffi_error(api, ffi_code(ret), words);
	}
	/* First, as nobody could take a block whose token was not told. */
	ret = lane_write_token(lane, stream, on_device(call->token), block->token, words);
	if (ret) {
		saved_undo(block);
		lane_put_ended(lane, call->bytes);
	} else {
		ret = lane_put(lane, stream, on_device(call->value), block, words);
	}
	return ret ? ffi_error(api, ffi_code(ret), words) : NULL;
}

static int claim(const struct call *call, uint64_t token, struct saved **block, char *words)
{
	uint64_t before = clock_ns();
	int ret = saved_claim(token, call->bytes, &call->origin, block, words);

	TRANSFER_COUNT(call->origin.device, block_wait_ns_total, clock_ns() - before);
	return ret;
}

/* Of what is still in memory; what a device has was compared before it went there. */
static int is_damaged(const struct saved *block)
{
	if (block->staged || !block->has_checksum)
		return 0;
	saved_checksum_compared();
	return checksum(block->held, block->bytes) != block->checksum;
}

static int token_of(struct lane *lane, cuda_stream stream, const struct call *call,
		    uint64_t *token, char *words)
{
	cuda_pointer from = on_device(call->token);
	int is_staged = 0;

	*token = saved_announced(&call->origin, call->number, &is_staged);
	if (*token && lane_may_run_ahead(lane, is_staged))
		return 0;
	return lane_read_tokens(lane, stream, &from, 1, token, words);
}

static XLA_FFI_Error *take(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
			   const struct call *call)
{
	const XLA_FFI_Api *api = frame->api;
	char words[SAVED_WORDS];
	XLA_FFI_Error *error;
	struct saved *block;
	uint64_t token;
	int ret = token_of(lane, stream, call, &token, words);

	if (!ret)
		ret = claim(call, token, &block, words);
	if (ret)
		return ffi_error(api, ffi_code(ret), words);
	if (is_damaged(block)) {
		error = call_damaged(api, block);
		saved_release(block);
		return error;
	}
	ret = lane_take(lane, stream, on_device(call->value), block, words);
	return ret ? ffi_error(api, ffi_code(ret), words) : NULL;
}

static XLA_FFI_Error *announce(struct lane *lane, cuda_stream stream, XLA_FFI_CallFrame *frame,
			       const struct call *call)
{
	cuda_pointer from[MAILBOX_TOKENS];
	uint64_t tokens[MAILBOX_TOKENS];
	uint64_t done, count, i;
	char words[SAVED_WORDS];
	int ret;

	for (done = 0; done < call->count; done += count) {
		count = call->count - done < MAILBOX_TOKENS ? call->count - done : MAILBOX_TOKENS;
		for (i = 0; i < count; i++)
			from[i] = on_device(call_token(frame, done + i));
		ret = lane_read_tokens(lane, stream, from, (unsigned int)count, tokens, words);
		for (i = 0; i < count && !ret; i++)
			ret = saved_announce(tokens[i], &call->origin,
					     (uint32_t)call->numbers[done + i], words);
		if (ret)
			return ffi_error(frame->api, ffi_code(ret), words);
	}
	lane_look_again(lane);
	return NULL;
}

/* What all do about their frame, its stream and the device's lane. */
static XLA_FFI_Error *run(XLA_FFI_CallFrame *frame,
			  XLA_FFI_Error *(*read)(XLA_FFI_CallFrame *frame, struct call *call),
			  XLA_FFI_Error *(*body)(struct lane *lane, cuda_stream stream,
						 XLA_FFI_CallFrame *frame,
						 const struct call *call))
{
	struct call call = { .origin.is_gpu = 1 };
	char words[SAVED_WORDS];
	XLA_FFI_Error *error;
	struct lane *lane;
	void *stream;
	int ret;

	if (ffi_metadata(frame))
		return NULL;
	error = read(frame, &call);
	if (!error)
		error = ffi_stream(frame, &stream);
	if (error)
		return error;
	lane = lane_enter(call.origin.device, stream, words, &ret);
	if (!lane)
		return ffi_error(frame->api, ffi_code(ret), words);
	error = body(lane, stream, frame, &call);
	lane_leave(lane);
	return error;
}

XLA_FFI_Error *actmem_xla_put_cuda(XLA_FFI_CallFrame *frame)
{
	return run(frame, call_put, put);
}

XLA_FFI_Error *actmem_xla_take_cuda(XLA_FFI_CallFrame *frame)
{
	return run(frame, call_take, take);
}

XLA_FFI_Error *actmem_xla_announce_cuda(XLA_FFI_CallFrame *frame)
{
	return run(frame, call_announce, announce);
}
