/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <stdio.h>
#include <string.h>

#include "xla_play.h"

#define CHUNK_BYTES	4096UL

struct XLA_FFI_Error {
	char message[1024];
};

static unsigned int errors;

/*
 * A handler returns one. It is no malloc's: that of AddressSanitizer may be locked in the
 * child of a fork for ever.
 */
static XLA_FFI_Error *error_create(XLA_FFI_Error_Create_Args *args)
{
	static _Thread_local struct XLA_FFI_Error error;

	snprintf(error.message, sizeof(error.message), "%s", args->message);
	__atomic_add_fetch(&errors, 1, __ATOMIC_RELAXED);
	return &error;
}

static void error_destroy(XLA_FFI_Error_Destroy_Args *args)
{
	__atomic_sub_fetch(&errors, 1, __ATOMIC_RELAXED);
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

static XLA_FFI_Buffer buffer(CUdeviceptr memory, XLA_FFI_DataType type, int64_t *count)
{
	return (XLA_FFI_Buffer){
		.struct_size = XLA_FFI_Buffer_STRUCT_SIZE,
		.dtype = type,
		.data = (void *)(uintptr_t)memory,
		.rank = 1,
		.dims = count,
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

static void add(struct attributes *its, const char *name, XLA_FFI_DataType type, uint32_t number)
{
	int64_t i = its->count++;

	its->names[i] = (XLA_FFI_ByteSpan){ name, strlen(name) };
	its->name_list[i] = &its->names[i];
	its->types[i] = XLA_FFI_AttrType_SCALAR;
	its->numbers[i] = number;
	its->scalars[i] = (XLA_FFI_Scalar){ type, &its->numbers[i] };
	its->values[i] = &its->scalars[i];
}

static void add_site(struct attributes *its, const char *site)
{
	int64_t i = its->count;

	add(its, "site", XLA_FFI_DataType_U32, 0);
	its->types[i] = XLA_FFI_AttrType_STRING;
	its->text = (XLA_FFI_ByteSpan){ site, strlen(site) };
	its->values[i] = &its->text;
}

static bool call_with(struct xla *xla, XLA_FFI_Handler *handler, XLA_FFI_Buffer operand,
		      XLA_FFI_Buffer result, struct attributes *its)
{
	XLA_FFI_Attrs attributes = { XLA_FFI_Attrs_STRUCT_SIZE, NULL, its->count, its->types,
				     its->name_list, its->values };

	return call_with_one(xla, handler, &operand, &result, &attributes);
}

/* @value has one dimension, or two: examples and their bytes. */
static bool put(struct xla *xla, const char *site, XLA_FFI_Buffer value, CUdeviceptr token,
		bool many)
{
	struct attributes its = { .count = 0 };
	int64_t words = 4;

	add_site(&its, site);
	add(&its, "batch", XLA_FFI_DataType_S32, (uint32_t)value.rank - 1);
	add(&its, "bounded", XLA_FFI_DataType_PRED, !many);
	add(&its, "many", XLA_FFI_DataType_PRED, many);
	add(&its, "layout", XLA_FFI_DataType_U32, 0);
	return call_with(xla, actmem_xla_put_cuda, value,
			 buffer(token, XLA_FFI_DataType_U32, &words), &its);
}

bool xla_put_batch(struct xla *xla, const char *site, CUdeviceptr value, int64_t examples,
		   uint64_t example_bytes, CUdeviceptr token)
{
	int64_t shape[] = { examples, (int64_t)example_bytes };
	XLA_FFI_Buffer operand = buffer(value, XLA_FFI_DataType_U8, shape);

	operand.rank = 2;
	return put(xla, site, operand, token, false);
}

bool xla_put(struct xla *xla, const char *site, CUdeviceptr value, uint64_t bytes,
	     CUdeviceptr token)
{
	int64_t count = (int64_t)bytes;

	return put(xla, site, buffer(value, XLA_FFI_DataType_U8, &count), token, false);
}

bool xla_put_for_many(struct xla *xla, const char *site, CUdeviceptr value, uint64_t bytes,
		      CUdeviceptr token)
{
	int64_t count = (int64_t)bytes;

	return put(xla, site, buffer(value, XLA_FFI_DataType_U8, &count), token, true);
}

static bool take(struct xla *xla, struct attributes *its, bool ends, CUdeviceptr token,
		 CUdeviceptr value, uint64_t bytes)
{
	int64_t count = (int64_t)bytes, words = 4;

	add(its, "ends", XLA_FFI_DataType_PRED, ends);
	add(its, "layout", XLA_FFI_DataType_U32, 0);
	return call_with(xla, actmem_xla_take_cuda, buffer(token, XLA_FFI_DataType_U32, &words),
			 buffer(value, XLA_FFI_DataType_U8, &count), its);
}

bool xla_take(struct xla *xla, CUdeviceptr token, CUdeviceptr value, uint64_t bytes)
{
	struct attributes its = { .count = 0 };

	return take(xla, &its, true, token, value, bytes);
}

bool xla_take_batch(struct xla *xla, CUdeviceptr tokens, int64_t count, CUdeviceptr value,
		    uint64_t example_bytes, bool ends)
{
	int64_t shape[] = { count, (int64_t)example_bytes }, tokens_shape[] = { count, 4 };
	XLA_FFI_Buffer operand = buffer(tokens, XLA_FFI_DataType_U32, tokens_shape);
	XLA_FFI_Buffer result = buffer(value, XLA_FFI_DataType_U8, shape);
	struct attributes its = { .count = 0 };

	operand.rank = 2;
	result.rank = 2;
	add(&its, "ends", XLA_FFI_DataType_PRED, ends);
	add(&its, "layout", XLA_FFI_DataType_U32, 0);
	return call_with(xla, actmem_xla_take_cuda, operand, result, &its);
}

bool xla_take_again(struct xla *xla, CUdeviceptr token, CUdeviceptr value, uint64_t bytes)
{
	struct attributes its = { .count = 0 };

	return take(xla, &its, false, token, value, bytes);
}

bool xla_take_announced(struct xla *xla, const char *site, int32_t number, CUdeviceptr token,
			CUdeviceptr value, uint64_t bytes)
{
	struct attributes its = { .count = 0 };

	add_site(&its, site);
	add(&its, "number", XLA_FFI_DataType_S32, (uint32_t)number);
	return take(xla, &its, true, token, value, bytes);
}

/* Of an array of @count tokens. */
static bool call_with_tokens(struct xla *xla, XLA_FFI_Handler *handler, CUdeviceptr tokens,
			     int64_t count, CUdeviceptr to, bool is_hold)
{
	int64_t shape[] = { count, 4 }, one = 1;
	XLA_FFI_Buffer operand = buffer(tokens, XLA_FFI_DataType_U32, shape);
	XLA_FFI_Buffer result = buffer(to, XLA_FFI_DataType_U32, is_hold ? shape : &one);

	operand.rank = 2;
	result.rank = is_hold ? 2 : 1;
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
		buffers[i] = buffer(tokens + XLA_TOKEN_BYTES * which[i], XLA_FFI_DataType_U32, &words);
		operands[i] = &buffers[i];
		numbers[i] = (int32_t)which[i];
	}
	return call(xla, actmem_xla_tie_cuda, args, rets, &attributes);
}

bool xla_tie(struct xla *xla, CUdeviceptr tokens, unsigned int count)
{
	unsigned int all[XLA_ANNOUNCED_MAX], i;

	if (count > XLA_ANNOUNCED_MAX)
		tap_bail("%u tokens to tie", count);
	for (i = 0; i < count; i++)
		all[i] = i;
	return xla_tie_these(xla, tokens, all, count);
}

unsigned int xla_errors(void)
{
	return __atomic_load_n(&errors, __ATOMIC_RELAXED);
}

CUstream xla_stream_or_bail(const struct cuda *cuda)
{
	CUstream stream;

	if (cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		tap_bail("cuStreamCreate");
	return stream;
}

static uint32_t word_of(uint32_t content, uint64_t chunk)
{
	return (content * 0x9e3779b9U) ^ ((uint32_t)chunk * 0x85ebca6bU) ^ content;
}

void xla_compute(struct xla *xla, CUdeviceptr value, uint64_t bytes, uint32_t content)
{
	uint64_t offset, length;

	for (offset = 0; offset < bytes; offset += CHUNK_BYTES) {
		length = bytes - offset < CHUNK_BYTES ? bytes - offset : CHUNK_BYTES;
		xla->cuda->cuMemsetD32Async(value + offset, word_of(content, offset / CHUNK_BYTES),
					    length / 4, xla->stream);
	}
}

bool xla_is_content(const void *memory, uint64_t bytes, uint32_t content)
{
	const uint32_t *words = memory;
	uint64_t i;

	for (i = 0; i < bytes / 4; i++)
		if (words[i] != word_of(content, i * 4 / CHUNK_BYTES))
			return false;
	return true;
}

struct actmem *xla_open(const struct memory *memory)
{
	struct actmem_xla_options options = {
		.size = sizeof(options), .ring_bytes = memory->ring_bytes,
		.budget_bytes = memory->budget_bytes, .limit_bytes = memory->limit_bytes,
		.grow_bytes = memory->grow_bytes, .spill_paths = &memory->spill,
		.spill_path_count = !!memory->spill,
	};
	struct actmem *am = open_or_bail();

	if (actmem_xla_attach(am, &options))
		tap_bail("actmem_xla_attach");
	return am;
}

void xla_close(struct actmem *am, const struct cuda *cuda)
{
	struct actmem_xla_stats stats;

	actmem_xla_trim_devices();
	returns(actmem_xla_trim(), 0);
	stats = xla_stats();
	ok(!stats.live_blocks && !stats.live_bytes && !stats.generations && !xla_errors(),
	   "no block, no generation and no error is left");
	actmem_xla_detach(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
}

struct actmem_xla_stats xla_stats(void)
{
	struct actmem_xla_stats stats = { .size = sizeof(stats) };

	actmem_xla_stats(&stats);
	return stats;
}

struct actmem_xla_transfer_stats xla_transfers(void)
{
	struct actmem_xla_transfer_stats stats = { .size = sizeof(stats) };

	actmem_xla_transfer_stats(0, &stats);
	return stats;
}

struct cuda xla_devices_or_skip(int wanted)
{
	char text[16];
	struct cuda cuda;
	int count;

	snprintf(text, sizeof(text), "%d", wanted);
	setenv("STANDIN_CUDA_DEVICES", text, 1);
	cuda = cuda_or_skip();
	if (cuda.cuInit(0) || cuda.cuDeviceGetCount(&count))
		tap_bail("cuInit");
	if (count < wanted) {
		tap_skip("%d GPU here, of %d that are needed", count, wanted);
		exit(tap_end());
	}
	return cuda;
}

void xla_begin(struct xla_device *its, const struct cuda *cuda, int ordinal, unsigned int values,
	       uint64_t bytes)
{
	void *memory;

	its->xla.cuda = cuda;
	its->xla.device = ordinal;
	if (cuda->cuDevicePrimaryCtxRetain(&its->context, ordinal) ||
	    cuda->cuCtxPushCurrent_v2(its->context) ||
	    cuda->cuMemAlloc_v2(&its->tokens, values * XLA_TOKEN_BYTES) ||
	    cuda->cuMemAlloc_v2(&its->work, bytes) ||
	    cuda->cuMemAlloc_v2(&its->results, values * bytes) ||
	    cuda->cuMemHostAlloc(&memory, values * bytes, 0))
		tap_bail("device %d", ordinal);
	its->seen = memory;
	its->xla.stream = xla_stream_or_bail(cuda);
}

void xla_end(struct xla_device *its)
{
	const struct cuda *cuda = its->xla.cuda;

	if (cuda->cuStreamDestroy_v2(its->xla.stream) || cuda->cuMemFree_v2(its->tokens) ||
	    cuda->cuMemFree_v2(its->work) || cuda->cuMemFree_v2(its->results) ||
	    cuda->cuMemFreeHost(its->seen))
		tap_bail("memory of device %d back", its->xla.device);
}

void xla_see(struct xla_device *its, uint64_t bytes)
{
	struct xla *xla = &its->xla;

	if (xla->cuda->cuMemcpyDtoHAsync_v2(its->seen, its->results, bytes, xla->stream) ||
	    xla->cuda->cuStreamSynchronize(xla->stream))
		tap_bail("results of device %d", xla->device);
}

bool xla_put_value(struct xla_device *its, const char *site, unsigned int value, uint64_t bytes,
		   uint32_t content)
{
	xla_compute(&its->xla, its->work, bytes, content);
	return xla_put(&its->xla, site, its->work, bytes, its->tokens + XLA_TOKEN_BYTES * value);
}

bool xla_put_step(struct xla_device *its, const char *site, unsigned int values, uint64_t bytes,
		  uint32_t content)
{
	bool done = true;
	unsigned int i;

	for (i = 0; i < values; i++)
		done = done && xla_put_value(its, site, i, bytes, content + i);
	xla_compute(&its->xla, its->work, bytes, 0);
	return done;
}

unsigned int xla_good(struct xla_device *its, unsigned int values, uint64_t bytes,
		      uint32_t content)
{
	unsigned int good = 0, i;

	xla_see(its, values * bytes);
	for (i = 0; i < values; i++)
		good += xla_is_content(its->seen + i * bytes, bytes, content + i);
	return good;
}

int xla_finish(const struct cuda *cuda, int devices, unsigned int times)
{
	int i;

	for (i = 0; i < devices * (int)times; i++)
		cuda_returns(cuda->cuDevicePrimaryCtxRelease_v2(i % devices), CUDA_SUCCESS);
	nothing_is_on_devices(cuda);
	nothing_is_retained(cuda);
	return tap_end();
}
