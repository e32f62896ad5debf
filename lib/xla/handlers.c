// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The handlers actmem_put and actmem_take for XLA's CPU platform.
 *
 *   put  (value) {site: string, bounded: bool} -> token uint32[2]
 *   take (token, ignored...) -> value
 *
 * What take ignores ties it to values that exist only once it is due. CPU
 * thunks are ordered by their buffers alone, so both run on any thread and at
 * the same time as others. A GPU's handlers, which copy on a stream, will be
 * a file beside this one; the table of blocks is shared.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actmem_xla.h"
#include "saved.h"
#include "checksum.h"
#include "copy.h"
#include "ffi.h"

ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_put(XLA_FFI_CallFrame *frame);
ACTMEM_XLA_API XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame);

static XLA_FFI_Error *wrong_call(XLA_FFI_CallFrame *frame, const char *what)
{
	return ffi_error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, what);
}

static int is_token(const XLA_FFI_Buffer *buffer)
{
	uint64_t bytes;

	return buffer && buffer->dtype == XLA_FFI_DataType_U32 &&
	       ffi_bytes(buffer, &bytes) && bytes == sizeof(uint64_t);
}

static XLA_FFI_Error *put_done(const XLA_FFI_Api *api, void *data)
{
	saved_filled(data);
	return NULL;
}

XLA_FFI_Error *actmem_xla_put(XLA_FFI_CallFrame *frame)
{
	const XLA_FFI_ByteSpan *site;
	const XLA_FFI_Scalar *bounded;
	XLA_FFI_Buffer *value, *token;
	char words[SAVED_WORDS];
	struct origin origin;
	XLA_FFI_Error *error;
	struct saved *block;
	uint64_t bytes;
	int ret;

	if (ffi_metadata(frame))
		return NULL;
	value = ffi_argument(frame, 0);
	token = ffi_result(frame, 0);
	site = ffi_attribute_string(frame, "site");
	bounded = ffi_attribute_scalar(frame, "bounded");
	if (!value || !ffi_bytes(value, &bytes) || !is_token(token) || !site ||
	    !bounded || bounded->dtype != XLA_FFI_DataType_PRED)
		return wrong_call(frame,
				  "actmem_put wants a value of whole bytes, a site and bounded, and returns uint32[2]");
	origin.site = site->ptr;
	origin.site_length = site->len;
	origin.bounded = *(const unsigned char *)bounded->value;
	error = ffi_run(frame, &origin.run, &origin.device);
	if (error)
		return error;
	ret = saved_begin(&origin, bytes, &block, words);
	if (ret)
		return ffi_error(frame->api, ffi_code(ret), words);
	memcpy(token->data, &block->token, sizeof(block->token));
	if (saved_checksum()) {
		block->checksum = checksum(value->data, bytes);
		block->has_checksum = 1;
	}
	return copy_start(frame, block->data, value->data, bytes, put_done, block);
}

static XLA_FFI_Error *damaged(const XLA_FFI_Api *api, const struct saved *block)
{
	char words[SAVED_WORDS];

	snprintf(words, sizeof(words),
		 "actmem: the %" PRIu64 " bytes saved at %s came back changed (checksum)",
		 block->bytes, saved_site_name(block->token));
	return ffi_error(api, XLA_FFI_Error_Code_DATA_LOSS, words);
}

static XLA_FFI_Error *take_done(const XLA_FFI_Api *api, void *data)
{
	struct saved *block = data;
	XLA_FFI_Error *error = NULL;

	if (block->has_checksum) {
		if (checksum(block->destination, block->bytes) !=
		    block->checksum)
			error = damaged(api, block);
		saved_checksum_compared();
	}
	saved_release(block);
	return error;
}

XLA_FFI_Error *actmem_xla_take(XLA_FFI_CallFrame *frame)
{
	XLA_FFI_Buffer *token, *value;
	char words[SAVED_WORDS];
	XLA_FFI_Error *error;
	struct saved *block;
	uint64_t bytes, number;
	uint32_t device;
	int64_t run;
	int ret;

	if (ffi_metadata(frame))
		return NULL;
	token = ffi_argument(frame, 0);
	value = ffi_result(frame, 0);
	if (!is_token(token) || !value || !ffi_bytes(value, &bytes))
		return wrong_call(frame,
				  "actmem_take wants a token, uint32[2], and returns a value of whole bytes");
	error = ffi_run(frame, &run, &device);
	if (error)
		return error;
	memcpy(&number, token->data, sizeof(number));
	ret = saved_claim(number, bytes, device, run, &block, words);
	if (ret)
		return ffi_error(frame->api, ffi_code(ret), words);
	block->destination = value->data;
	return copy_start(frame, value->data, block->data, bytes, take_done,
			  block);
}
