// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What the handlers are called with; see call.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "call.h"

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

XLA_FFI_Error *call_put(XLA_FFI_CallFrame *frame, struct call *call)
{
	const XLA_FFI_ByteSpan *site = ffi_attribute_string(frame, "site");
	const XLA_FFI_Scalar *bounded = ffi_attribute_scalar(frame, "bounded");
	XLA_FFI_Buffer *value = ffi_argument(frame, 0), *token = ffi_result(frame, 0);

	if (!value || !ffi_bytes(value, &call->bytes) || !is_token(token) || !site ||
	    !bounded || bounded->dtype != XLA_FFI_DataType_PRED)
		return wrong_call(frame,
				  "actmem_put wants a value of whole bytes, a site and bounded, and returns uint32[2]");
	call->value = value->data;
	call->token = token->data;
	call->origin.site = site->ptr;
	call->origin.site_length = site->len;
	call->origin.bounded = *(const unsigned char *)bounded->value;
	return ffi_run(frame, &call->origin.run, &call->origin.device);
}

XLA_FFI_Error *call_take(XLA_FFI_CallFrame *frame, struct call *call)
{
	XLA_FFI_Buffer *token = ffi_argument(frame, 0), *value = ffi_result(frame, 0);
	const XLA_FFI_ByteSpan *site = ffi_attribute_string(frame, "site");
	const XLA_FFI_Scalar *number = ffi_attribute_scalar(frame, "number");

	if (!is_token(token) || !value || !ffi_bytes(value, &call->bytes))
		return wrong_call(frame,
				  "actmem_take wants a token, uint32[2], and returns a value of whole bytes");
	call->value = value->data;
	call->token = token->data;
	if (site && number && number->dtype == XLA_FFI_DataType_S32) {
		call->origin.site = site->ptr;
		call->origin.site_length = site->len;
		memcpy(&call->number, number->value, sizeof(call->number));
	}
	return ffi_run(frame, &call->origin.run, &call->origin.device);
}

XLA_FFI_Error *call_announce(XLA_FFI_CallFrame *frame, struct call *call)
{
	const XLA_FFI_Array *numbers = ffi_attribute_array(frame, "numbers");
	uint64_t i = 0;

	if (numbers && numbers->dtype == XLA_FFI_DataType_S32)
		while (i < numbers->size && is_token(ffi_argument(frame, (int64_t)i)))
			i++;
	if (!numbers || i < numbers->size)
		return wrong_call(frame,
				  "actmem_announce wants tokens, uint32[2], and as many numbers, int32");
	call->numbers = numbers->data;
	call->count = numbers->size;
	return ffi_run(frame, &call->origin.run, &call->origin.device);
}

void *call_token(XLA_FFI_CallFrame *frame, uint64_t i)
{
	return ffi_argument(frame, (int64_t)i)->data;
}

XLA_FFI_Error *call_damaged(const XLA_FFI_Api *api, const struct saved *block)
{
	char words[SAVED_WORDS];

	snprintf(words, sizeof(words),
		 "actmem: the %" PRIu64 " bytes saved at %s came back changed (checksum)",
		 block->bytes, saved_site_name(block->token));
	return ffi_error(api, XLA_FFI_Error_Code_DATA_LOSS, words);
}
