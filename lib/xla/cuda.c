// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The CUDA driver API for the handlers; see cuda.h.
 */
#include <stdio.h>

#include "xla/cuda.h"

cuda_result cuda_context_of(cuda_stream stream, cuda_context *context)
{
	struct CUgreenCtx_st *green;

	return cuda.cuStreamGetCtx_v2 ? cuda.cuStreamGetCtx_v2(stream, context, &green) :
	       cuda.cuStreamGetCtx(stream, context);
}

int cuda_failed(cuda_result result, const char *what, uint32_t device, char *words,
		size_t words_size)
{
	snprintf(words, words_size, "actmem: cannot %s on device %u: %s", what, device,
		 CUDA_TEXT(result));
	return -cuda_errno(result);
}
