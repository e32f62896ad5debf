/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The operands, attributes and results of the handlers, on each platform:
 *
 *   put  (value) {site: string, batch: int32, bounded: bool, many: bool,
 *                 layout: uint32} -> token
 *   take (tokens) {site: string, ends: bool, layout: uint32, number: int32} -> value
 *   tie  (tokens, tokens..., ignored) {numbers: int32[]} -> tokens, tokens...
 *   hold (tokens) -> tokens
 *   drop (tokens, ignored...) -> uint32[1]
 *
 * A token is uint32[4] (struct token). An array of tokens has its own dimensions before
 * that one. The first @batch dimensions of a put's value count its examples. The put returns
 * the token of example 0; the program numbers those of the others itself. A take returns one
 * example for each of its tokens, in their order, and its value has the dimensions of the
 * tokens before those of an example. A take fails if its layout or an example's type or
 * dimensions differ from those of the put.
 *
 * A tie returns its tokens only once its ignored operand exists, and announces their takes.
 * The take of a single token, if its number is not -1, has this number and the site of its
 * put. A take without a number is not announced. A hold adds a reference for each of its tokens;
 * a take that ends, and a drop, end one for each. A drop comes after the takes whose results
 * it ignores. Its own result means nothing.
 */
#ifndef ACTMEM_XLA_CALL_H
#define ACTMEM_XLA_CALL_H

#include <stdint.h>

#include "xla/ffi.h"
#include "xla/saved.h"

struct call {
	void *value;
	uint64_t bytes;			/* of it */
	void *token;			/* put: one; others: an array */
	struct origin origin;		/* take: without bounded; is_gpu is the caller's */
	uint32_t number;		/* take: of those of its site */
	const int32_t *numbers;		/* tie: of each array of tokens */
	uint64_t count;			/* tie: of arrays; take, hold, drop: of tokens */
};

/* NULL, or an error: the call is none of these. */
XLA_FFI_Error *call_put(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_take(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_tie(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_hold(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_drop(XLA_FFI_CallFrame *frame, struct call *call);

/* Returns how many tokens operand @i of a tie has; they are at *@from, and go to *@to. */
uint64_t call_tokens(XLA_FFI_CallFrame *frame, uint64_t i, void **from, void **to);

/*
 * Splits @count tokens into rows: stores those from token *@at on in *@rows and moves *@at
 * behind them. Returns 0 after the last.
 */
int call_next_rows(const struct token *tokens, uint64_t count, uint64_t *at, struct rows *rows);

/* @block came back with another checksum. */
XLA_FFI_Error *call_damaged(const XLA_FFI_Api *api, const struct saved *block);

#endif /* ACTMEM_XLA_CALL_H */
