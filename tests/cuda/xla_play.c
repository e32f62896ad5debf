/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <stdio.h>
#include <string.h>

#include "xla_play.h"

struct XLA_FFI_Error {
	char message[1024];
};

unsigned int xla_errors;

/*
 * A handler returns one. It is no malloc's: that of AddressSanitizer may be locked in the
 * child of a fork for ever.
 */
static XLA_FFI_Error *error_create(XLA_FFI_Error_Create_Args *args)
{
	static _Thread_local struct XLA_FFI_Error error;

	snprintf(error.message, sizeof(error.message), "%s", args->message);
	__atomic_add_fetch(&xla_errors, 1, __ATOMIC_RELAXED);
	return &error;
}

static void error_destroy(XLA_FFI_Error_Destroy_Args *args)
{
	__atomic_sub_fetch(&xla_errors, 1, __ATOMIC_RELAXED);
}

static struct xla *of(XLA_FFI_ExecutionContext *context)
{
	return (struct xla *)context;
}

static XLA_FFI_Error *stream_get(XLA_FFI_Stream_Get_Args *args)
{
	args->stream = of(args->ctx)->stream;
	return NULL;
}

static XLA_FFI_Error *run_get(XLA_FFI_RunId_Get_Args *args)
{
	args->run_id = of(args->ctx)->run;
	return NULL;
}

static XLA_FFI_Error *device_get(XLA_FFI_DeviceOrdinal_Get_Args *args)
{
	args->device_ordinal = of(args->ctx)->device;
	return NULL;
}

static const XLA_FFI_Api api = {
	.struct_size = XLA_FFI_Api_STRUCT_SIZE,
	.api_version = { .struct_size = XLA_FFI_Api_Version_STRUCT_SIZE,
			 .major_version = XLA_FFI_API_MAJOR,
			 .minor_version = XLA_FFI_API_MINOR },
	.XLA_FFI_Error_Create = error_create,
	.XLA_FFI_Error_Destroy = error_destroy,
	.XLA_FFI_Stream_Get = stream_get,
	.XLA_FFI_RunId_Get = run_get,
	.XLA_FFI_DeviceOrdinal_Get = device_get,
};

static XLA_FFI_Buffer buffer(CUdeviceptr memory, XLA_FFI_DataType type, int64_t *shape, int64_t rank)
{
	return (XLA_FFI_Buffer){
		.struct_size = XLA_FFI_Buffer_STRUCT_SIZE,
		.dtype = type,
		.data = (void *)(uintptr_t)memory,
		.rank = rank,
		.dims = shape,
	};
}

static bool call(struct xla *xla, XLA_FFI_Handler *handler, XLA_FFI_Args operands,
		 XLA_FFI_Rets results, const XLA_FFI_Attrs *attributes)
{
	XLA_FFI_CallFrame frame = {
		.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE,
		.api = &api,
		.ctx = (XLA_FFI_ExecutionContext *)xla,
		.stage = XLA_FFI_ExecutionStage_EXECUTE,
		.args = operands,
		.rets = results,
	};
	struct XLA_FFI_Error *error;

	if (attributes)
		frame.attrs = *attributes;
	error = handler(&frame);
	if (frame.future)
		tap_bail("a handler for a GPU made a future");
	if (error) {
		XLA_FFI_Error_Destroy_Args args = { .error = error };

		memcpy(xla->words, error->message, sizeof(xla->words));
		error_destroy(&args);
	}
	return !error;
}

static bool call_with_one(struct xla *xla, XLA_FFI_Handler *handler, XLA_FFI_Buffer *operand,
			  XLA_FFI_Buffer *result, const XLA_FFI_Attrs *attributes)
{
	XLA_FFI_ArgType type = XLA_FFI_ArgType_BUFFER;
	void *operands[] = { operand };
	XLA_FFI_Args args = { XLA_FFI_Args_STRUCT_SIZE, NULL, 1, &type, operands };
	XLA_FFI_RetType result_type = XLA_FFI_RetType_BUFFER;
	void *results[] = { result };
	XLA_FFI_Rets rets = { XLA_FFI_Rets_STRUCT_SIZE, NULL, 1, &result_type, results };

	return call(xla, handler, args, rets, attributes);
}

/* The attributes of a call, which point into this; made by add(). */
struct attributes {
	XLA_FFI_ByteSpan names[7], *name_list[7], text;
	XLA_FFI_AttrType types[7];
	XLA_FFI_Scalar scalars[7];
	uint32_t numbers[7];
	void *values[7];
	int64_t count;
};

static void add(struct attributes *added, const char *name, XLA_FFI_DataType type, uint32_t number)
{
	int64_t i = added->count++;

	added->names[i] = (XLA_FFI_ByteSpan){ name, strlen(name) };
	added->name_list[i] = &added->names[i];
	added->types[i] = XLA_FFI_AttrType_SCALAR;
	added->numbers[i] = number;
	added->scalars[i] = (XLA_FFI_Scalar){ type, &added->numbers[i] };
	added->values[i] = &added->scalars[i];
}

static void add_site(struct attributes *added, const char *site)
{
	int64_t i = added->count;

	add(added, "site", XLA_FFI_DataType_U32, 0);
	added->types[i] = XLA_FFI_AttrType_STRING;
	added->text = (XLA_FFI_ByteSpan){ site, strlen(site) };
	added->values[i] = &added->text;
}

static bool call_with(struct xla *xla, XLA_FFI_Handler *handler, XLA_FFI_Buffer operand,
		      XLA_FFI_Buffer result, struct attributes *added)
{
	XLA_FFI_Attrs attributes = { XLA_FFI_Attrs_STRUCT_SIZE, NULL, added->count, added->types,
				     added->name_list, added->values };

	return call_with_one(xla, handler, &operand, &result, &attributes);
}

/* @value has one dimension, or two: examples and their bytes. */
static bool put(struct xla *xla, const char *site, XLA_FFI_Buffer value, CUdeviceptr token,
		bool many)
{
	struct attributes added = { .count = 0 };
	int64_t words = 4;

	add_site(&added, site);
	add(&added, "batch", XLA_FFI_DataType_S32, (uint32_t)value.rank - 1);
	add(&added, "bounded", XLA_FFI_DataType_PRED, !many);
	add(&added, "many", XLA_FFI_DataType_PRED, many);
	add(&added, "layout", XLA_FFI_DataType_U32, 0);
	return call_with(xla, actmem_xla_put_cuda, value,
			 buffer(token, XLA_FFI_DataType_U32, &words, 1), &added);
}

bool xla_put_batch(struct xla *xla, const char *site, CUdeviceptr value, int64_t examples,
		   uint64_t example_bytes, CUdeviceptr token)
{
	int64_t shape[] = { examples, (int64_t)example_bytes };

	return put(xla, site, buffer(value, XLA_FFI_DataType_U8, shape, 2), token, false);
}

bool xla_put(struct xla *xla, const char *site, CUdeviceptr value, uint64_t bytes,
	     CUdeviceptr token)
{
	int64_t count = (int64_t)bytes;

	return put(xla, site, buffer(value, XLA_FFI_DataType_U8, &count, 1), token, false);
}

bool xla_put_for_many(struct xla *xla, const char *site, CUdeviceptr value, uint64_t bytes,
		      CUdeviceptr token)
{
	int64_t count = (int64_t)bytes;

	return put(xla, site, buffer(value, XLA_FFI_DataType_U8, &count, 1), token, true);
}

static bool take(struct xla *xla, struct attributes *added, bool ends, XLA_FFI_Buffer tokens,
		 XLA_FFI_Buffer value)
{
	add(added, "ends", XLA_FFI_DataType_PRED, ends);
	add(added, "layout", XLA_FFI_DataType_U32, 0);
	return call_with(xla, actmem_xla_take_cuda, tokens, value, added);
}

static bool take_one(struct xla *xla, struct attributes *added, bool ends, CUdeviceptr token,
		     CUdeviceptr value, uint64_t bytes)
{
	int64_t count = (int64_t)bytes, words = 4;

	return take(xla, added, ends, buffer(token, XLA_FFI_DataType_U32, &words, 1),
		    buffer(value, XLA_FFI_DataType_U8, &count, 1));
}

bool xla_take(struct xla *xla, CUdeviceptr token, CUdeviceptr value, uint64_t bytes)
{
	return take_one(xla, &(struct attributes){ .count = 0 }, true, token, value, bytes);
}

bool xla_take_as_rows(struct xla *xla, CUdeviceptr token, CUdeviceptr value, int64_t rows,
		      int64_t row_bytes)
{
	int64_t shape[] = { rows, row_bytes }, words = 4;

	return take(xla, &(struct attributes){ .count = 0 }, true,
		    buffer(token, XLA_FFI_DataType_U32, &words, 1),
		    buffer(value, XLA_FFI_DataType_U8, shape, 2));
}

bool xla_take_again(struct xla *xla, CUdeviceptr token, CUdeviceptr value, uint64_t bytes)
{
	return take_one(xla, &(struct attributes){ .count = 0 }, false, token, value, bytes);
}

bool xla_take_batch(struct xla *xla, CUdeviceptr tokens, int64_t count, CUdeviceptr value,
		    uint64_t example_bytes, bool ends)
{
	int64_t shape[] = { count, (int64_t)example_bytes }, tokens_shape[] = { count, 4 };

	return take(xla, &(struct attributes){ .count = 0 }, ends,
		    buffer(tokens, XLA_FFI_DataType_U32, tokens_shape, 2),
		    buffer(value, XLA_FFI_DataType_U8, shape, 2));
}

bool xla_take_announced(struct xla *xla, const char *site, int32_t number, CUdeviceptr token,
			CUdeviceptr value, uint64_t bytes)
{
	struct attributes added = { .count = 0 };

	add_site(&added, site);
	add(&added, "number", XLA_FFI_DataType_S32, (uint32_t)number);
	return take_one(xla, &added, true, token, value, bytes);
}

/* Of an array of @count tokens. */
static bool call_with_tokens(struct xla *xla, XLA_FFI_Handler *handler, CUdeviceptr tokens,
			     int64_t count, CUdeviceptr to, bool is_hold)
{
	int64_t shape[] = { count, 4 }, one = 1;
	XLA_FFI_Buffer operand = buffer(tokens, XLA_FFI_DataType_U32, shape, 2);
	XLA_FFI_Buffer result = buffer(to, XLA_FFI_DataType_U32, is_hold ? shape : &one,
				       is_hold ? 2 : 1);

	return call_with_one(xla, handler, &operand, &result, NULL);
}

bool xla_hold(struct xla *xla, CUdeviceptr tokens, int64_t count, CUdeviceptr to)
{
	return call_with_tokens(xla, actmem_xla_hold_cuda, tokens, count, to, true);
}

bool xla_drop(struct xla *xla, CUdeviceptr tokens, int64_t count, CUdeviceptr unused)
{
	return call_with_tokens(xla, actmem_xla_drop_cuda, tokens, count, unused, false);
}

bool xla_tie_these(struct xla *xla, CUdeviceptr tokens, const unsigned int *which,
			unsigned int count)
{
	XLA_FFI_ByteSpan name = { "numbers", 7 }, *name_list[] = { &name };
	XLA_FFI_AttrType attribute_type = XLA_FFI_AttrType_ARRAY;
	XLA_FFI_ArgType types[XLA_ANNOUNCED_MAX];
	XLA_FFI_RetType result_types[XLA_ANNOUNCED_MAX];
	XLA_FFI_Buffer buffers[XLA_ANNOUNCED_MAX];
	int32_t numbers[XLA_ANNOUNCED_MAX];
	void *operands[XLA_ANNOUNCED_MAX];
	XLA_FFI_Array array = { XLA_FFI_DataType_S32, count, numbers };
	void *values[] = { &array };
	XLA_FFI_Attrs attributes = { XLA_FFI_Attrs_STRUCT_SIZE, NULL, 1, &attribute_type, name_list,
				     values };
	XLA_FFI_Args args = { XLA_FFI_Args_STRUCT_SIZE, NULL, count, types, operands };
	/* The tied value takes its place. */
	XLA_FFI_Rets rets = { XLA_FFI_Rets_STRUCT_SIZE, NULL, count, result_types, operands };
	int64_t words = 4;
	unsigned int i;

	if (count > XLA_ANNOUNCED_MAX)
		tap_bail("%u tokens to tie", count);
	for (i = 0; i < count; i++) {
		types[i] = XLA_FFI_ArgType_BUFFER;
		result_types[i] = XLA_FFI_RetType_BUFFER;
		buffers[i] = buffer(tokens + XLA_TOKEN_BYTES * which[i], XLA_FFI_DataType_U32, &words, 1);
		operands[i] = &buffers[i];
		numbers[i] = (int32_t)which[i];
	}
	return call(xla, actmem_xla_tie_cuda, args, rets, &attributes);
}

bool xla_tie(struct xla *xla, CUdeviceptr tokens, unsigned int count)
{
	unsigned int all[XLA_ANNOUNCED_MAX], i;

	for (i = 0; i < count && i < XLA_ANNOUNCED_MAX; i++)
		all[i] = i;
	return xla_tie_these(xla, tokens, all, count);
}
