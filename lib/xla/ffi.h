/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The few calls of XLA's C interface that the handlers need, each with its
 * argument struct filled in.
 */
#ifndef ACTMEM_XLA_FFI_H
#define ACTMEM_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

#include "xla/ffi/api/c_api.h"

/*
 * Whether @frame asks for the handler's metadata instead of running it, which
 * is then answered.
 */
int ffi_metadata(XLA_FFI_CallFrame *frame);

/* Returns an error of XLA's. If the process uses several devices, it also writes it to stderr. */
XLA_FFI_Error *ffi_error(const XLA_FFI_Api *api, XLA_FFI_Error_Code code,
			 const char *message);
void ffi_error_drop(const XLA_FFI_Api *api, XLA_FFI_Error *error);

/* The code that says the same as a negative errno. */
XLA_FFI_Error_Code ffi_code(int error);

/* Threads that parts may run on, the caller's included: 1 without a pool. */
uint64_t ffi_threads(XLA_FFI_CallFrame *frame);
/* 0: not scheduled, the caller runs it itself. */
int ffi_schedule(XLA_FFI_CallFrame *frame, XLA_FFI_Task *task, void *data);
/* NULL: not to be had, the caller does without. */
XLA_FFI_Future *ffi_future(XLA_FFI_CallFrame *frame);

/* The execution and its device, of those of this process; an error if XLA does not tell. */
XLA_FFI_Error *ffi_run(XLA_FFI_CallFrame *frame, int64_t *run,
		       uint32_t *device);

/* GPU: the stream that the execution is on; an error if XLA does not tell. */
XLA_FFI_Error *ffi_stream(XLA_FFI_CallFrame *frame, void **stream);

/* Operand or result @index, NULL if there is none. */
XLA_FFI_Buffer *ffi_argument(XLA_FFI_CallFrame *frame, int64_t index);
XLA_FFI_Buffer *ffi_result(XLA_FFI_CallFrame *frame, int64_t index);

/* Bytes of @buffer in *@bytes; 0 if its type has no whole number of bytes. */
int ffi_bytes(const XLA_FFI_Buffer *buffer, uint64_t *bytes);
/* The type of an element as in "f32", NULL for one that ffi_bytes() refuses. */
const char *ffi_type_name(const XLA_FFI_Buffer *buffer);

/* The value of attribute @name if it is of that kind, else NULL. */
const XLA_FFI_ByteSpan *ffi_attribute_string(XLA_FFI_CallFrame *frame,
					     const char *name);
const XLA_FFI_Scalar *ffi_attribute_scalar(XLA_FFI_CallFrame *frame,
					   const char *name);
const XLA_FFI_Array *ffi_attribute_array(XLA_FFI_CallFrame *frame, const char *name);

#endif /* ACTMEM_XLA_FFI_H */
