/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the operands and attributes of handlers; see call.h.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "xla/call.h"

static XLA_FFI_Error *wrong_call(XLA_FFI_CallFrame *frame, const char *what)
{
	return ffi_error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, what);
}

_Static_assert(sizeof(struct token) == 4 * sizeof(uint32_t), "a token is uint32[4]");

int64_t call_tokens_in(const XLA_FFI_Buffer *buffer)
{
	uint64_t bytes;

	if (!buffer || buffer->dtype != XLA_FFI_DataType_U32 || !buffer->rank ||
	    buffer->dims[buffer->rank - 1] != 4 || !ffi_bytes(buffer, &bytes))
		return -1;
	return (int64_t)(bytes / sizeof(struct token));
}

static bool is_token(const XLA_FFI_Buffer *buffer)
{
	return call_tokens_in(buffer) == 1;
}

static bool read_flag(XLA_FFI_CallFrame *frame, const char *name, bool *flag)
{
	const XLA_FFI_Scalar *scalar = ffi_attribute_scalar(frame, name);

	if (!scalar || scalar->dtype != XLA_FFI_DataType_PRED)
		return false;
	*flag = *(const unsigned char *)scalar->value;
	return true;
}

static bool read_number(XLA_FFI_CallFrame *frame, const char *name, XLA_FFI_DataType type,
		       uint32_t *number)
{
	const XLA_FFI_Scalar *scalar = ffi_attribute_scalar(frame, name);

	if (!scalar || scalar->dtype != type)
		return false;
	memcpy(number, scalar->value, sizeof(*number));
	return true;
}

static bool read_site(XLA_FFI_CallFrame *frame, struct origin *origin)
{
	const XLA_FFI_ByteSpan *site = ffi_attribute_string(frame, "site");

	if (!site)
		return false;
	origin->site = site->ptr;
	origin->site_length = site->len;
	return true;
}

/* Returns true if the first dimensions of @value are all dimensions of @tokens but the last. */
static bool begins_as(const XLA_FFI_Buffer *value, const XLA_FFI_Buffer *tokens)
{
	int64_t i, rank = tokens->rank - 1;

	if (value->rank < rank)
		return false;
	for (i = 0; i < rank; i++)
		if (value->dims[i] != tokens->dims[i])
			return false;
	return true;
}

/*
 * Stores the shape of one example, an element of the batch @value. The shape omits the first @batch
 * dimensions of @value.
 */
static void read_shape(const XLA_FFI_Buffer *value, int64_t batch, struct shape *shape)
{
	size_t used = (size_t)snprintf(shape->text, sizeof(shape->text), "%s[",
				       ffi_type_name(value->dtype));
	const char *comma = "";
	int64_t i;

	for (i = batch; i < value->rank && used < sizeof(shape->text); i++) {
		used += (size_t)snprintf(shape->text + used, sizeof(shape->text) - used,
					 "%s%" PRId64, comma, value->dims[i]);
		comma = ",";
	}
	if (used < sizeof(shape->text))
		snprintf(shape->text + used, sizeof(shape->text) - used, "]");
	shape->type = value->dtype;
	shape->hash = checksum(value->dims + batch,
			       (uint64_t)(value->rank - batch) * sizeof(*value->dims)) +
		      shape->type;
}

void call_set_type(struct shape *shape, const struct shape *from, XLA_FFI_DataType type)
{
	const char *dimensions = strchr(from->text, '[');

	shape->type = type;
	shape->hash = from->hash - from->type + type;
	snprintf(shape->text, sizeof(shape->text), "%s%s", ffi_type_name(type),
		 dimensions ? dimensions : "");
}

/*
 * Reads the attribute @batch of a call of actmem_put. Computes the number of examples, which is the
 * product of the first *@batch dimensions of @value.
 */
static bool read_examples(XLA_FFI_CallFrame *frame, const XLA_FFI_Buffer *value, uint32_t *batch,
			 uint64_t *examples)
{
	uint32_t i;

	if (!read_number(frame, "batch", XLA_FFI_DataType_S32, batch) || *batch > value->rank)
		return false;
	*examples = 1;
	for (i = 0; i < *batch; i++)
		*examples *= (uint64_t)value->dims[i];
	return true;
}

XLA_FFI_Error *call_put(XLA_FFI_CallFrame *frame, struct call *call)
{
	XLA_FFI_Buffer *value = ffi_argument(frame, 0), *token = ffi_result(frame, 0);
	struct origin *origin = &call->origin;
	uint32_t batch;

	if (!value || !ffi_bytes(value, &call->bytes) || !is_token(token) ||
	    !read_examples(frame, value, &batch, &origin->examples) ||
	    !read_site(frame, origin) || !read_flag(frame, "bounded", &origin->bounded) ||
	    !read_flag(frame, "many", &origin->many) ||
	    !read_number(frame, "layout", XLA_FFI_DataType_U32, &origin->layout))
		return wrong_call(frame,
				  "actmem_put needs a value of whole bytes, a site, batch, bounded, many and a layout, and returns uint32[4]");
	read_shape(value, batch, &origin->shape);
	call->value = value->data;
	call->token = token->data;
	return ffi_run(frame, &origin->run, &origin->device);
}

XLA_FFI_Error *call_take(XLA_FFI_CallFrame *frame, struct call *call)
{
	XLA_FFI_Buffer *token = ffi_argument(frame, 0), *value = ffi_result(frame, 0);
	struct origin *origin = &call->origin;

	if (call_tokens_in(token) < 0 || !value || !ffi_bytes(value, &call->bytes) ||
	    !begins_as(value, token) || !read_flag(frame, "ends", &origin->ends) ||
	    !read_number(frame, "layout", XLA_FFI_DataType_U32, &origin->layout))
		return wrong_call(frame,
				  "actmem_take needs tokens, uint32[..., 4], ends and a layout, and returns one example of whole bytes for each token");
	read_shape(value, token->rank - 1, &origin->shape);
	call->value = value->data;
	call->token = token->data;
	call->count = (uint64_t)call_tokens_in(token);
	if (read_number(frame, "number", XLA_FFI_DataType_S32, &call->number))
		read_site(frame, origin);
	return ffi_run(frame, &origin->run, &origin->device);
}

XLA_FFI_Error *call_tie(XLA_FFI_CallFrame *frame, struct call *call)
{
	const XLA_FFI_Array *numbers = ffi_attribute_array(frame, "numbers");
	uint64_t i = 0;
	int64_t count;

	if (numbers && numbers->dtype == XLA_FFI_DataType_S32) {
		while (i < numbers->size) {
			count = call_tokens_in(ffi_argument(frame, (int64_t)i));
			if (count < 0 || count != call_tokens_in(ffi_result(frame, (int64_t)i)))
				break;
			i++;
		}
	}
	if (!numbers || i < numbers->size)
		return wrong_call(frame,
				  "actmem_tie needs arrays of tokens and one int32 number for each, and returns the tokens");
	call->numbers = numbers->data;
	call->count = numbers->size;
	return ffi_run(frame, &call->origin.run, &call->origin.device);
}

XLA_FFI_Error *call_drop(XLA_FFI_CallFrame *frame, struct call *call)
{
	XLA_FFI_Buffer *tokens = ffi_argument(frame, 0);

	if (call_tokens_in(tokens) < 0)
		return wrong_call(frame, "actmem_drop and actmem_hold need an array of tokens");
	call->token = tokens->data;
	call->count = (uint64_t)call_tokens_in(tokens);
	return ffi_run(frame, &call->origin.run, &call->origin.device);
}

XLA_FFI_Error *call_hold(XLA_FFI_CallFrame *frame, struct call *call)
{
	XLA_FFI_Buffer *tokens = ffi_result(frame, 0);
	XLA_FFI_Error *error = call_drop(frame, call);

	if (!error && call_tokens_in(tokens) != (int64_t)call->count)
		return wrong_call(frame, "actmem_hold returns its tokens");
	return error;
}

uint64_t call_tokens(XLA_FFI_CallFrame *frame, uint64_t i, void **from, void **to)
{
	const XLA_FFI_Buffer *operand = ffi_argument(frame, (int64_t)i);

	*from = operand->data;
	*to = ffi_result(frame, (int64_t)i)->data;
	return (uint64_t)call_tokens_in(operand);
}

bool call_next_rows(const struct token *tokens, uint64_t count, uint64_t *at, struct rows *rows)
{
	uint64_t i = *at;

	if (i >= count)
		return false;
	rows->id = tokens[i].id;
	rows->first = tokens[i].example;
	rows->changed = false;
	rows->count = 0;
	while (i < count && tokens[i].id == rows->id &&
	       (!rows->id || tokens[i].example == rows->first + rows->count)) {
		rows->changed |= tokens[i].changed;
		rows->count++;
		i++;
	}
	*at = i;
	return true;
}
