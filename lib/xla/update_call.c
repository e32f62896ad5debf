/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Reads the operands and attributes of actmem_update; see update_call.h. */
#include <stdio.h>

#include "xla/call.h"
#include "xla/update_call.h"

#define WORDS_OF_OPERATION	(sizeof(struct update_operation) / sizeof(int32_t))

static XLA_FFI_Error *wrong_update(XLA_FFI_CallFrame *frame, const char *what)
{
	char words[SAVED_WORDS];

	snprintf(words, sizeof(words), "actmem_update: %s", what);
	return ffi_error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, words);
}

struct numbers {
	const int32_t *data;		/* may be NULL if the array is empty */
	uint32_t count;
};

/* Reads attribute @name, an array of int32. */
static bool read_numbers(XLA_FFI_CallFrame *frame, const char *name, struct numbers *numbers)
{
	const XLA_FFI_Array *array = ffi_attribute_array(frame, name);

	if (!array || array->dtype != XLA_FFI_DataType_S32 || array->size > UINT32_MAX)
		return false;
	numbers->data = array->data;
	numbers->count = (uint32_t)array->size;
	return true;
}

/* Reads the operands and results. program.output_count must be set. */
static bool read_buffers(XLA_FFI_CallFrame *frame, struct update_call *call)
{
	const XLA_FFI_Buffer *buffer;
	uint32_t i;

	if (frame->args.size > UPDATE_VALUES_MAX)
		return false;
	call->operand_count = (uint32_t)frame->args.size;
	for (i = 0; i < call->operand_count; i++) {
		buffer = ffi_argument(frame, i);
		if (call_tokens_in(buffer) != 1)
			return false;
		call->operands[i] = buffer->data;
	}
	for (i = 0; i < call->program.output_count; i++) {
		buffer = ffi_result(frame, i);
		if (call_tokens_in(buffer) != 1)
			return false;
		call->results[i] = buffer->data;
	}
	return true;
}

static bool read_sites(XLA_FFI_CallFrame *frame, struct update_call *call)
{
	const XLA_FFI_ByteSpan *site;
	char name[16];
	uint32_t i;

	for (i = 0; i < call->program.output_count; i++) {
		snprintf(name, sizeof(name), "site%u", i);
		site = ffi_attribute_string(frame, name);
		if (!site)
			return false;
		call->sites[i].name = site->ptr;
		call->sites[i].length = site->len;
	}
	return true;
}

static bool are_types(const int32_t *types, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (types[i] != UPDATE_F32 && types[i] != UPDATE_BF16)
			return false;
	return true;
}

XLA_FFI_Error *update_call_read(XLA_FFI_CallFrame *frame, struct update_call *call)
{
	struct numbers ends, values, types, bounded, many, operations, constants;
	struct update_program *program = &call->program;
	char why[SAVED_WORDS / 2];

	if (!read_numbers(frame, "ends", &ends) || !read_numbers(frame, "values", &values) ||
	    !read_numbers(frame, "types", &types) || !read_numbers(frame, "bounded", &bounded) ||
	    !read_numbers(frame, "many", &many) || !read_numbers(frame, "constants", &constants) ||
	    !read_numbers(frame, "operations", &operations) ||
	    operations.count % WORDS_OF_OPERATION)
		return wrong_update(frame, "needs ends, values, types, bounded, many, operations and constants, int32[]");
	call->ends = ends.data;
	call->types = types.data;
	call->bounded = bounded.data;
	call->many = many.data;
	program->input_count = ends.count;
	program->output_count = values.count;
	program->outputs = values.data;
	program->operations = (const struct update_operation *)operations.data;
	program->operation_count = (uint32_t)(operations.count / WORDS_OF_OPERATION);
	program->constants = (const float *)constants.data;
	program->constant_count = constants.count;
	if (program->output_count > UPDATE_ARRAYS_MAX || !read_buffers(frame, call) ||
	    call->operand_count < program->input_count)
		return wrong_update(frame,
				    "needs operands uint32[4], at least one for each of ends, and returns uint32[4]");
	program->scalar_count = call->operand_count - program->input_count;
	if (update_check(program, why, sizeof(why)))
		return wrong_update(frame, why);
	if (types.count != program->input_count + program->output_count ||
	    !are_types(call->types, types.count))
		return wrong_update(frame, "needs the type of each block, 0 or 1");
	if (!read_sites(frame, call) || bounded.count != program->output_count ||
	    many.count != program->output_count)
		return wrong_update(frame, "needs a site, bounded and many for each new block");
	return ffi_run(frame, &call->origin.run, &call->origin.device);
}
