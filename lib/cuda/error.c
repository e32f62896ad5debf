/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Describes CUDA's results, and translates them to errno.
 */
#include <errno.h>
#include <stdio.h>

#include "cuda/cuda.h"

const char *cuda_text(char text[CUDA_TEXT_MAX], cuda_result result)
{
	const char *name = NULL, *description = NULL;

	if (cuda.cuGetErrorName(result, &name) || !name)
		name = "an error without a name";
	if (cuda.cuGetErrorString(result, &description) || !description)
		snprintf(text, CUDA_TEXT_MAX, "%s (%u)", name, result);
	else
		snprintf(text, CUDA_TEXT_MAX, "%s (%u, %s)", name, result, description);
	return text;
}

int cuda_errno(cuda_result result)
{
	switch (result) {
	case CUDA_INVALID_VALUE:
		return EINVAL;
	case CUDA_OUT_OF_MEMORY:
		return ENOMEM;
	case CUDA_NOT_INITIALIZED:
		return EOWNERDEAD;
	case CUDA_STUB_LIBRARY:
		return ENOENT;
	case CUDA_DEVICE_UNAVAILABLE:
	case CUDA_STREAM_CAPTURE_UNSUPPORTED:
		return EBUSY;
	case CUDA_NO_DEVICE:
	case CUDA_INVALID_DEVICE:
	case CUDA_SYSTEM_NOT_READY:
	case CUDA_DRIVER_MISMATCH:
		return ENODEV;
	case CUDA_DEINITIALIZED:
	case CUDA_INVALID_CONTEXT:
	case CUDA_CONTEXT_IS_DESTROYED:
		return ESTALE;
	case CUDA_ALREADY_REGISTERED:
		return EEXIST;
	case CUDA_NOT_PERMITTED:
		return EPERM;
	case CUDA_NOT_SUPPORTED:
		return EOPNOTSUPP;
	default:
		return EIO;
	}
}

bool cuda_context_is_gone(cuda_result result)
{
	return result == CUDA_DEINITIALIZED || result == CUDA_CONTEXT_IS_DESTROYED ||
	       result == CUDA_INVALID_CONTEXT;
}
