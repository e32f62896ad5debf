/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The operands, attributes and results of the handlers actmem_put, actmem_take and so on, on each
 * platform:
 *
 *   put  (value) {site: string, batch: int32, bounded: bool, many: bool,
 *                 layout: uint32} -> token
 *   take (tokens) {site: string, ends: bool, layout: uint32, number: int32} -> value
 *   tie  (tokens, tokens..., ignored) {numbers: int32[]} -> tokens, tokens...
 *   hold (tokens) -> tokens
 *   drop (tokens, ignored...) -> uint32[1]
 *
 * A token is uint32[4] (struct token). The last dimension of an array of tokens is 4. The value of
 * actmem_put has as many examples as the product of its first @batch dimensions. The handler
 * returns the token of example 0, and the program computes the tokens of the other examples.
 * The handler actmem_take returns one example for each of its tokens, in the order of the tokens.
 * Its value has the dimensions of the array of tokens without the last dimension, followed by the
 * dimensions of an example. The handler fails if its layout, or the type or dimensions of its
 * examples, differ from those of actmem_put.
 *
 * The handler actmem_tie returns its tokens only after its ignored operand has been computed. The
 * array `numbers` has an entry for each operand with tokens. If such an operand is a single token
 * and its entry is not -1, actmem_tie announces the call of actmem_take that will take this token
 * (saved.h). In that call, the attribute `number` equals the entry, and `site` is the site where
 * the token's block was stored. Calls without a number are not announced.
 *
 * The handler actmem_hold adds a reference for each of its tokens. The handler actmem_drop removes
 * one reference for each of its tokens, and so does actmem_take if its attribute `ends` is true.
 * XLA calls actmem_drop after the calls of actmem_take whose results are its ignored operands. The
 * result of actmem_drop has no meaning.
 */
#ifndef LIB_XLA_CALL_H
#define LIB_XLA_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "xla/ffi.h"
#include "xla/saved.h"

struct update_call;

struct call {
	void *value;
	uint64_t bytes;			/* length of value */
	void *token;			/* put: one token; other calls: an array of tokens */
	struct origin origin;		/* the caller sets is_gpu; only call_put() sets bounded */
	uint32_t number;		/* take: the attribute `number` */
	const int32_t *numbers;		/* tie: the attribute `numbers` */
	uint64_t count;			/* number of arrays (tie) or tokens (take, hold, drop) */
	struct update_call *update;	/* actmem_update: its operands and attributes */
};

/* Read a handler's frame. Return NULL, or an error if its operands or attributes are wrong. */
XLA_FFI_Error *call_put(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_take(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_tie(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_hold(XLA_FFI_CallFrame *frame, struct call *call);
XLA_FFI_Error *call_drop(XLA_FFI_CallFrame *frame, struct call *call);

/*
 * Sets @shape to the dimensions of @from with elements of @type. @shape and @from must be different
 * structs.
 */
void call_set_type(struct shape *shape, const struct shape *from, XLA_FFI_DataType type);

/* Returns the number of tokens in @buffer, or -1 if it is NULL or does not contain tokens. */
int64_t call_tokens_in(const XLA_FFI_Buffer *buffer);

/*
 * Returns the number of tokens of operand @i of actmem_tie. Stores the address of the operand's
 * tokens in *@from, and the address of result @i in *@to.
 */
uint64_t call_tokens(XLA_FFI_CallFrame *frame, uint64_t i, void **from, void **to);

/*
 * Finds the next rows (struct rows) in @count tokens. Stores the rows that begin at token *@at in
 * *@rows, and advances *@at to the token after them. Returns false if no tokens are left.
 */
bool call_next_rows(const struct token *tokens, uint64_t count, uint64_t *at, struct rows *rows);

#endif /* LIB_XLA_CALL_H */
