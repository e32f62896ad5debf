/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the handlers are called with, on whatever platform:
 *
 *   put  (value) {site: string, bounded: bool} -> token uint32[2]
 *   take (token, ignored...) {site: string, number: int32} -> value
 *   announce (token, token..., ignored...) {numbers: int32[]} -> uint32[1], uint32[1]...
 *
 * What a take ignores ties it to values that exist only once it is due, and to the
 * announcement that its token is in: of as many tokens as there are numbers, whose takes
 * have these numbers and the site of their puts. A take without site and number is not
 * announced. What an announcement returns, one thing for each token to be tied to, is
 * never looked at, and so not written.
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
	struct origin origin;		/* take: without bounded; is_gpu is the caller's */
	uint32_t number;		/* take: of those of its site */
	const int32_t *numbers;		/* announce: of each token */
	uint64_t count;			/* of them */
};

/* NULL, or why it is none of ours. */
XLA_FFI_Error *call_put(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_take(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_announce(XLA_FFI_CallFrame *frame, struct call *call);

/* Of an announcement: token @i of its count. */
void *call_token(XLA_FFI_CallFrame *frame, uint64_t i);

/* @block came back with another checksum. */
XLA_FFI_Error *call_damaged(const XLA_FFI_Api *api, const struct saved *block);

#endif /* ACTMEM_XLA_CALL_H */
