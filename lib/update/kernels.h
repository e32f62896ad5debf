/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The code of the steps. kernel_set.h is compiled once for each instruction set. The results are
 * bit-identical with every instruction set.
 */
#ifndef LIB_UPDATE_KERNELS_H
#define LIB_UPDATE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "update/steps.h"

/*
 * A vector of float32 is one register of AVX-512, two of AVX2 or four of SSE and Arm. In the arrays
 * of a caller, vectors are aligned only to their elements.
 */
typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
typedef float vector_at __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef uint16_t half_at __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

/* The addresses of the values of a block. Each thread has its own struct. */
struct values {
	const vector_at *at[UPDATE_VALUES_MAX];
	vector room[UPDATE_VALUES_MAX][BLOCK_VECTORS];	/* temporaries and widened inputs */
	const char *inputs[UPDATE_ARRAYS_MAX];		/* addresses of the current block */
	char *outputs[UPDATE_ARRAYS_MAX];
};

struct kernels {
	const char *name;
	/* Computes @blocks blocks, and moves the addresses in @values past them. */
	void (*compute)(struct values *values, const struct steps *steps, uint64_t blocks);
};

/*
 * Returns the kernels for the best instruction set of this processor, or those that a test chose.
 */
const struct kernels *kernels_used(void);

/*
 * For tests: selects the kernels with the name @name or, if it is NULL, the best kernels. Returns
 * false if the processor lacks their instruction set.
 */
bool kernels_use(const char *name);

extern const struct kernels kernels_baseline, kernels_avx2, kernels_avx512;

#endif /* LIB_UPDATE_KERNELS_H */
