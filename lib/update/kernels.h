/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * One function for each operation, on short arrays of values. kernel_set.h has their code, which is
 * compiled once for each instruction set. All sets compute the same bits.
 */
#ifndef LIB_UPDATE_KERNELS_H
#define LIB_UPDATE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "update/update.h"

#define VECTOR_BYTES	64
#define VECTOR_LENGTH	(VECTOR_BYTES / sizeof(float))

/*
 * A vector of float32 is one register of AVX-512, two of AVX2 or four of SSE and Arm. Vectors in
 * the arrays of a caller have the alignment of their elements.
 */
typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
typedef float vector_at __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef uint16_t half_at __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

struct operand {
	const vector_at *at;
	size_t step;			/* vectors from one to the next: 0 repeats the first */
};

/* Computes @count vectors. @to may be an operand. */
typedef void kernel_function(vector *to, const struct operand operands[3], size_t count);

struct kernels {
	const char *name;
	kernel_function *operations[UPDATE_CODES];
	void (*widen)(vector *to, const half_at *from, size_t count);
	/* Store past the caches if @to is a multiple of VECTOR_BYTES. */
	void (*store_f32)(void *to, const struct operand *from, size_t count);
	void (*store_bf16)(void *to, const struct operand *from, size_t count);
};

/* Returns the set in use: the best one that this processor has, unless a test chose another one. */
const struct kernels *kernels_used(void);

/* For tests. Returns false if the processor lacks the set of this name. NULL: the best set. */
bool kernels_use(const char *name);

extern const struct kernels kernels_baseline, kernels_avx2, kernels_avx512;

#endif /* LIB_UPDATE_KERNELS_H */
