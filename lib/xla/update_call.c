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

/* Returns attribute @name, an array of int32, and stores its length in *@count; NULL: none. */
static const int32_t *read_numbers(XLA_FFI_CallFrame *frame, const char *name, uint32_t *count)
{
	const XLA_FFI_Array *array = ffi_attribute_array(frame, name);

	if (!array || array->dtype != XLA_FFI_DataType_S32 || array->size > UINT32_MAX)
		return NULL;
	*count = (uint32_t)array->size;
	return array->data;
}

/* Reads the operands and results. The number of new blocks is known. */
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
	struct update_program *program = &call->program;
	const int32_t *operations, *constants;
	uint32_t words = 0, types = 0, bounded = 0, many = 0;
	char why[SAVED_WORDS / 2];

	call->ends = read_numbers(frame, "ends", &program->input_count);
	program->outputs = read_numbers(frame, "values", &program->output_count);
	call->types = read_numbers(frame, "types", &types);
	call->bounded = read_numbers(frame, "bounded", &bounded);
	call->many = read_numbers(frame, "many", &many);
	operations = read_numbers(frame, "operations", &words);
	constants = read_numbers(frame, "constants", &program->constant_count);
	if (!call->ends || !program->outputs || !call->types || !operations || !constants ||
	    words % WORDS_OF_OPERATION)
		return wrong_update(frame, "needs ends, values, types, operations and constants, int32[]");
	program->operations = (const struct update_operation *)operations;
	program->operation_count = (uint32_t)(words / WORDS_OF_OPERATION);
	program->constants = (const float *)constants;
	if (program->output_count > UPDATE_ARRAYS_MAX || !read_buffers(frame, call) ||
	    call->operand_count < program->input_count)
		return wrong_update(frame,
				    "needs operands uint32[4], at least one for each of ends, and returns uint32[4]");
	program->scalar_count = call->operand_count - program->input_count;
	if (update_check(program, why, sizeof(why)))
		return wrong_update(frame, why);
	if (types != program->input_count + program->output_count || !are_types(call->types, types))
		return wrong_update(frame, "needs the type of each block, 0 or 1");
	if (!read_sites(frame, call) || !call->bounded || bounded != program->output_count ||
	    !call->many || many != program->output_count)
		return wrong_update(frame, "needs a site, bounded and many for each new block");
	return ffi_run(frame, &call->origin.run, &call->origin.device);
}
