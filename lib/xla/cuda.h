/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The CUDA driver API as the handlers call it, with error messages for its results.
 */
#ifndef ACTMEM_XLA_CUDA_H
#define ACTMEM_XLA_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda.h"

/*
 * Finds the context that owns the memory and events of a stream. For a stream of a green context,
 * this is the primary context; before CUDA 12.5, it is the green context itself.
 */
cuda_result cuda_context_of(cuda_stream stream, cuda_context *context);

/* Returns a negative errno for @result. Writes to @words that @what failed, and why. */
int cuda_failed(cuda_result result, const char *what, uint32_t device, char *words,
		size_t words_size);

/*
 * Makes @call and stores its result in *@result, unless *@result is the error of an earlier call.
 * Example: CUDA_TRY(&result, cuEventRecord(event, stream));
 */
#define CUDA_TRY(result, call)			\
	do {					\
		if (!*(result))			\
			*(result) = cuda.call;	\
	} while (0)

#endif /* ACTMEM_XLA_CUDA_H */
