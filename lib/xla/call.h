/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the two handlers are called with, on whatever platform:
 *
 *   put  (value) {site: string, bounded: bool} -> token uint32[2]
 *   take (token, ignored...) -> value
 *
 * What take ignores ties it to values that exist only once it is due.
 */
#ifndef ACTMEM_XLA_CALL_H
#define ACTMEM_XLA_CALL_H

#include <stdint.h>

#include "ffi.h"
#include "saved.h"

struct call {
	void *value;
	uint64_t bytes;			/* of it */
	void *token;
	struct origin origin;		/* take: run and device alone; is_gpu is the caller's */
};

/* NULL, or why it is none of ours. */
XLA_FFI_Error *call_put(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_take(XLA_FFI_CallFrame *frame, struct call *call);

/* @block came back with another checksum. */
XLA_FFI_Error *call_damaged(const XLA_FFI_Api *api, const struct saved *block);

#endif /* ACTMEM_XLA_CALL_H */
