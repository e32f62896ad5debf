/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The calls of XLA's C interface that the handlers need; see ffi.h.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "xla/ffi.h"

#define TOLD_MOST	8

/* Whether a device other than 0 made a call, and the number of errors printed since. */
static atomic_bool several_devices;
static atomic_uint told;

/*
 * The minor version of XLA's interface in JAX 0.10.1, the oldest JAX that is supported. XLA refuses
 * handlers with a later version than its own. The handlers report this version, and use nothing
 * that was added later. So they can be built with the header of any later jaxlib, too.
 */
#define FFI_MINOR	3

bool ffi_metadata(XLA_FFI_CallFrame *frame)
{
	/* JAX 0.11 renamed this type. */
	__typeof__(frame->extension_start) extension = frame->extension_start;
	XLA_FFI_Metadata *metadata;

	for (; extension; extension = extension->next) {
		if (extension->type != XLA_FFI_Extension_Metadata)
			continue;
		metadata = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
		metadata->api_version.major_version = XLA_FFI_API_MAJOR;
		metadata->api_version.minor_version = FFI_MINOR;
		metadata->traits = 0;
		return true;
	}
	return false;
}

XLA_FFI_Error *ffi_error(const XLA_FFI_Api *api, XLA_FFI_Error_Code code,
			 const char *message)
{
	XLA_FFI_Error_Create_Args args = {
		.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
		.message = message,
		.errc = code,
	};

	/*
	 * Print the error: if other devices of the program wait for this one, XLA may never report
	 * the error.
	 */
	if (atomic_load(&several_devices) && atomic_fetch_add(&told, 1) < TOLD_MOST)
		fprintf(stderr, "%s (this error is on one of several devices; the others may wait for it until XLA ends the process)\n",
			message);
	return api->XLA_FFI_Error_Create(&args);
}

void ffi_error_drop(const XLA_FFI_Api *api, XLA_FFI_Error *error)
{
	XLA_FFI_Error_Destroy_Args args = {
		.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE,
		.error = error,
	};

	if (error)
		api->XLA_FFI_Error_Destroy(&args);
}

XLA_FFI_Error_Code ffi_code(int error)
{
	switch (-error) {
	case ENOMEM:
	case EDQUOT:
	case EDEADLK:
	case ENOSPC:
		return XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
	case EINVAL:
	case ERANGE:
		return XLA_FFI_Error_Code_INVALID_ARGUMENT;
	case EACCES:
	case EPERM:
		return XLA_FFI_Error_Code_PERMISSION_DENIED;
	case EIO:
	case ENODATA:
	case EBADMSG:
		return XLA_FFI_Error_Code_DATA_LOSS;
	case ENOENT:
	case ESTALE:
		return XLA_FFI_Error_Code_FAILED_PRECONDITION;
	default:
		return XLA_FFI_Error_Code_UNAVAILABLE;
	}
}

uint64_t ffi_threads(XLA_FFI_CallFrame *frame)
{
	int64_t threads = 1;
	XLA_FFI_ThreadPool_NumThreads_Args args = {
		.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE,
		.ctx = frame->ctx,
		.num_threads = &threads,
	};
	XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_NumThreads(&args);

	ffi_error_drop(frame->api, error);
	return error || threads < 1 ? 1 : (uint64_t)threads;
}

bool ffi_schedule(XLA_FFI_CallFrame *frame, XLA_FFI_Task *task, void *data)
{
	XLA_FFI_ThreadPool_Schedule_Args args = {
		.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE,
		.ctx = frame->ctx,
		.task = task,
		.data = data,
	};
	XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_Schedule(&args);

	ffi_error_drop(frame->api, error);
	return !error;
}

XLA_FFI_Future *ffi_future(XLA_FFI_CallFrame *frame)
{
	XLA_FFI_Future_Create_Args args = {
		/* The header's constant does not include the last field. */
		.struct_size = sizeof(args),
	};
	XLA_FFI_Error *error = frame->api->XLA_FFI_Future_Create(&args);

	ffi_error_drop(frame->api, error);
	return error ? NULL : args.future;
}

void ffi_future_end(const XLA_FFI_Api *api, XLA_FFI_Future *future, XLA_FFI_Error *error)
{
	XLA_FFI_Future_SetAvailable_Args available = {
		.struct_size = XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE,
		.future = future,
	};
	XLA_FFI_Future_SetError_Args failed = {
		.struct_size = XLA_FFI_Future_SetError_Args_STRUCT_SIZE,
		.future = future,
		.error = error,
	};

	ffi_error_drop(api, error ? api->XLA_FFI_Future_SetError(&failed) :
			    api->XLA_FFI_Future_SetAvailable(&available));
}

/* XLA numbers CPU devices across all processes. Each process has a range of this length. */
#define CPU_DEVICES_OF_A_PROCESS	2048

XLA_FFI_Error *ffi_run(XLA_FFI_CallFrame *frame, int64_t *run, uint32_t *device)
{
	XLA_FFI_RunId_Get_Args run_args = {
		.struct_size = XLA_FFI_RunId_Get_Args_STRUCT_SIZE,
		.ctx = frame->ctx,
	};
	XLA_FFI_DeviceOrdinal_Get_Args device_args = {
		.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE,
		.ctx = frame->ctx,
	};
	XLA_FFI_Error *error = frame->api->XLA_FFI_RunId_Get(&run_args);

	if (!error)
		error = frame->api->XLA_FFI_DeviceOrdinal_Get(&device_args);
	if (error)
		return error;
	*run = run_args.run_id;
	*device = (uint32_t)device_args.device_ordinal % CPU_DEVICES_OF_A_PROCESS;
	if (*device)
		atomic_store(&several_devices, true);
	return NULL;
}

XLA_FFI_Error *ffi_stream(XLA_FFI_CallFrame *frame, void **stream)
{
	XLA_FFI_Stream_Get_Args args = {
		.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE,
		.ctx = frame->ctx,
	};
	XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&args);

	if (!error)
		*stream = args.stream;
	return error;
}

XLA_FFI_Buffer *ffi_argument(XLA_FFI_CallFrame *frame, int64_t index)
{
	if (index >= frame->args.size ||
	    frame->args.types[index] != XLA_FFI_ArgType_BUFFER)
		return NULL;
	return frame->args.args[index];
}

XLA_FFI_Buffer *ffi_result(XLA_FFI_CallFrame *frame, int64_t index)
{
	if (index >= frame->rets.size ||
	    frame->rets.types[index] != XLA_FFI_RetType_BUFFER)
		return NULL;
	return frame->rets.rets[index];
}

/* No type here is smaller than a byte: the Python module passes such values as uint8. */
static const struct element_type {
	XLA_FFI_DataType type;
	unsigned int bytes;
	const char *name;
} element_types[] = {
	{ XLA_FFI_DataType_PRED, 1, "bool" },
	{ XLA_FFI_DataType_S8, 1, "s8" },
	{ XLA_FFI_DataType_U8, 1, "u8" },
	{ XLA_FFI_DataType_F8E5M2, 1, "f8e5m2" },
	{ XLA_FFI_DataType_F8E3M4, 1, "f8e3m4" },
	{ XLA_FFI_DataType_F8E4M3, 1, "f8e4m3" },
	{ XLA_FFI_DataType_F8E4M3FN, 1, "f8e4m3fn" },
	{ XLA_FFI_DataType_F8E4M3B11FNUZ, 1, "f8e4m3b11fnuz" },
	{ XLA_FFI_DataType_F8E5M2FNUZ, 1, "f8e5m2fnuz" },
	{ XLA_FFI_DataType_F8E4M3FNUZ, 1, "f8e4m3fnuz" },
	{ XLA_FFI_DataType_F8E8M0FNU, 1, "f8e8m0fnu" },
	{ XLA_FFI_DataType_S16, 2, "s16" },
	{ XLA_FFI_DataType_U16, 2, "u16" },
	{ XLA_FFI_DataType_F16, 2, "f16" },
	{ XLA_FFI_DataType_BF16, 2, "bf16" },
	{ XLA_FFI_DataType_S32, 4, "s32" },
	{ XLA_FFI_DataType_U32, 4, "u32" },
	{ XLA_FFI_DataType_F32, 4, "f32" },
	{ XLA_FFI_DataType_S64, 8, "s64" },
	{ XLA_FFI_DataType_U64, 8, "u64" },
	{ XLA_FFI_DataType_F64, 8, "f64" },
	{ XLA_FFI_DataType_C64, 8, "c64" },
	{ XLA_FFI_DataType_C128, 16, "c128" },
};

static const struct element_type *element_type(XLA_FFI_DataType type)
{
	unsigned int i;

	for (i = 0; i < sizeof(element_types) / sizeof(element_types[0]); i++)
		if (element_types[i].type == type)
			return &element_types[i];
	return NULL;
}

const char *ffi_type_name(XLA_FFI_DataType type)
{
	const struct element_type *found = element_type(type);

	return found ? found->name : NULL;
}

unsigned int ffi_type_bytes(XLA_FFI_DataType type)
{
	const struct element_type *found = element_type(type);

	return found ? found->bytes : 0;
}

bool ffi_bytes(const XLA_FFI_Buffer *buffer, uint64_t *bytes)
{
	int64_t i;

	*bytes = ffi_type_bytes(buffer->dtype);
	if (!*bytes)
		return false;
	for (i = 0; i < buffer->rank; i++)
		*bytes *= (uint64_t)buffer->dims[i];
	return true;
}

static const void *find_attribute(XLA_FFI_CallFrame *frame, const char *name,
			     XLA_FFI_AttrType type)
{
	size_t length = strlen(name);
	int64_t i;

	for (i = 0; i < frame->attrs.size; i++)
		if (frame->attrs.types[i] == type &&
		    frame->attrs.names[i]->len == length &&
		    !memcmp(frame->attrs.names[i]->ptr, name, length))
			return frame->attrs.attrs[i];
	return NULL;
}

const XLA_FFI_ByteSpan *ffi_attribute_string(XLA_FFI_CallFrame *frame,
					     const char *name)
{
	return find_attribute(frame, name, XLA_FFI_AttrType_STRING);
}

const XLA_FFI_Scalar *ffi_attribute_scalar(XLA_FFI_CallFrame *frame,
					   const char *name)
{
	return find_attribute(frame, name, XLA_FFI_AttrType_SCALAR);
}

const XLA_FFI_Array *ffi_attribute_array(XLA_FFI_CallFrame *frame, const char *name)
{
	return find_attribute(frame, name, XLA_FFI_AttrType_ARRAY);
}
