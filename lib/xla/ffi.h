/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The functions of XLA's C interface that the handlers need. Each function fills in the struct of
 * its arguments.
 */
#ifndef LIB_XLA_FFI_H
#define LIB_XLA_FFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xla/ffi/api/c_api.h"

/*
 * If @frame requests the handler's metadata instead of a run, stores the metadata and returns true.
 */
bool ffi_metadata(XLA_FFI_CallFrame *frame);

/* Creates an error of XLA. If the process uses several devices, also prints @message on stderr. */
XLA_FFI_Error *ffi_error(const XLA_FFI_Api *api, XLA_FFI_Error_Code code,
			 const char *message);
void ffi_error_drop(const XLA_FFI_Api *api, XLA_FFI_Error *error);

/* Returns XLA's error code for a negative errno. */
XLA_FFI_Error_Code ffi_code(int error);

/* Returns the number of threads in XLA's pool, or 1 without a pool. */
uint64_t ffi_threads(XLA_FFI_CallFrame *frame);
/* Schedules @task on XLA's pool. Returns false on failure; the caller then runs @task itself. */
bool ffi_schedule(XLA_FFI_CallFrame *frame, XLA_FFI_Task *task, void *data);
/* Creates a future. If this returns NULL, the handler must finish its work before it returns. */
XLA_FFI_Future *ffi_future(XLA_FFI_CallFrame *frame);
/*
 * Completes a future, with an error unless @error is NULL. During the call, XLA may continue the
 * program on this thread.
 */
void ffi_future_end(const XLA_FFI_Api *api, XLA_FFI_Future *future, XLA_FFI_Error *error);

/*
 * Stores the run ID of the execution in *@run, and the number of its device in this process in
 * *@device. Returns an error if XLA does not report these numbers.
 */
XLA_FFI_Error *ffi_run(XLA_FFI_CallFrame *frame, int64_t *run,
		       uint32_t *device);

/* Stores the stream of a GPU's execution. Returns an error if XLA does not report the stream. */
XLA_FFI_Error *ffi_stream(XLA_FFI_CallFrame *frame, void **stream);

/* Return operand or result @index, or NULL if there is none. */
XLA_FFI_Buffer *ffi_argument(XLA_FFI_CallFrame *frame, int64_t index);
XLA_FFI_Buffer *ffi_result(XLA_FFI_CallFrame *frame, int64_t index);

/*
 * Stores the length of @buffer in *@bytes. Returns false if the size of an element is not a whole
 * number of bytes, or is unknown.
 */
bool ffi_bytes(const XLA_FFI_Buffer *buffer, uint64_t *bytes);
/*
 * Return the name of a type, such as "f32", and the size of an element. If ffi_bytes() returns
 * false for this type, the name is NULL and the size is 0.
 */
const char *ffi_type_name(XLA_FFI_DataType type);
unsigned int ffi_type_bytes(XLA_FFI_DataType type);

/* Return the value of attribute @name, or NULL if no attribute has this name and type. */
const XLA_FFI_ByteSpan *ffi_attribute_string(XLA_FFI_CallFrame *frame,
					     const char *name);
const XLA_FFI_Scalar *ffi_attribute_scalar(XLA_FFI_CallFrame *frame,
					   const char *name);
const XLA_FFI_Array *ffi_attribute_array(XLA_FFI_CallFrame *frame, const char *name);

#endif /* LIB_XLA_FFI_H */
