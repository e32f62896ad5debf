/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handler actmem_update, which updates weights and the state of an optimizer on the host's
 * CPUs. update_call.c reads the operands and attributes, and update_job.c computes.
 *
 *   update (tokens..., scalars...) {operations, constants, values: int32[], types: int32[],
 *           ends: int32[], bounded: int32[], many: int32[], site0: string, ...} -> tokens...
 *
 * A scalar is uint32[4], like a token; the first of its four numbers has the bits of a float32.
 * @types has the type (enum update_type) of each block that the call reads, and then of each block
 * that the call makes. @operations is an array of struct update_operation. @constants has the bits
 * of float32 numbers. For each new block, @values has the number of the value (update.h) that the
 * block will contain. @ends has 1 for each token whose last use is this call, and 0 for the other
 * tokens. Each new block has its own site, @bounded and @many (struct origin). All blocks that the
 * call reads or makes have the same dimensions and layout.
 *
 * The call never changes a block that it reads. It writes new blocks with instructions that bypass
 * the caches, so it moves no more bytes than an update in place would. If an update fails, only
 * blocks whose tokens have 1 in @ends can be lost.
 */
#ifndef LIB_XLA_UPDATE_CALL_H
#define LIB_XLA_UPDATE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "update/update.h"
#include "xla/ffi.h"
#include "xla/saved.h"

/* The site of a new block. Its name is in the call's attributes. */
struct update_site {
	const char *name;
	size_t length;
};

struct update_call {
	struct origin origin;		/* only run, device and is_gpu are set */
	struct update_program program;
	const int32_t *types, *ends, *bounded, *many;
	struct update_site sites[UPDATE_ARRAYS_MAX];
	void *operands[UPDATE_VALUES_MAX];	/* tokens, and then scalars */
	uint32_t operand_count;
	struct token *results[UPDATE_ARRAYS_MAX];	/* memory for the tokens of new blocks */
};

/* Reads a handler's frame. Returns NULL, or an error if its operands or attributes are wrong. */
XLA_FFI_Error *update_call_read(XLA_FFI_CallFrame *frame, struct update_call *call);

/*
 * Computes an update. @operands are the contents of the call's operands. Stores the ids of the new
 * blocks in @ids. Waits until the blocks to read are filled and in memory. Only one update runs at
 * a time: two updates, each with several blocks, could wait for each other's memory. Returns 0, or
 * a negative errno with an error message in @words[SAVED_WORDS]. After an error, there is no new
 * block.
 */
int update_job_run(const struct update_call *call, const struct token *operands, uint64_t *ids,
		   char *words);

#endif /* LIB_XLA_UPDATE_CALL_H */
