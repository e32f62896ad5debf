/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The operands, attributes and results of the handlers, on each platform:
 *
 *   put  (value) {site: string, bounded: bool, many: bool, layout: uint32, fixed: bool} -> token
 *   take (token) {site: string, ends: bool, layout: uint32, number: int32} -> value
 *   tie  (token, token..., ignored) {numbers: int32[]} -> token, token...
 *   hold (token) -> token
 *   drop (token, ignored...) -> uint32[1]
 *
 * A token is uint32[2], and an array of them where a loop has put one in each turn: its
 * dimensions are before that one. A take whose layout is not its put's fails. A put that is
 * fixed is of a program in which nothing chooses what is put and taken; one that does not
 * say is not.
 *
 * A tie returns its tokens only once its ignored operand exists, and announces their takes:
 * a take of a single token whose number is not -1 has this number and the site of its put.
 * A take without a number is not announced. A token that is held is dropped once more
 * often. A drop ignores results of the takes that it comes after; nobody looks at its own
 * result.
 */
#ifndef ACTMEM_XLA_CALL_H
#define ACTMEM_XLA_CALL_H

#include <stdint.h>

#include "xla/ffi.h"
#include "xla/saved.h"

struct call {
	void *value;
	uint64_t bytes;			/* of it */
	void *token;
	struct origin origin;		/* take: without bounded; is_gpu is the caller's */
	uint32_t number;		/* take: of those of its site */
	const int32_t *numbers;		/* tie: of each token, or array of them */
	uint64_t count;			/* of them; drop: of tokens */
};

/* NULL, or an error: the call is none of these. */
XLA_FFI_Error *call_put(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_take(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_tie(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_hold(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_drop(XLA_FFI_CallFrame *frame, struct call *call);

/* Returns how many tokens operand @i of a tie has; they are at *@from, and go to *@to. */
uint64_t call_tokens(XLA_FFI_CallFrame *frame, uint64_t i, void **from, void **to);

/* @block came back with another checksum. */
XLA_FFI_Error *call_damaged(const XLA_FFI_Api *api, const struct saved *block);

#endif /* ACTMEM_XLA_CALL_H */
