/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A stand-in for libcudnn.so.9, without which XLA compiles nothing: it can be opened and
 * asked for its version, and does nothing else.
 */
#pragma GCC visibility push(default)

#include <stddef.h>

#define CUDNN_VERSION		91200
#define CUDNN_SUCCESS		0
#define CUDNN_BAD_PARAM		2000

int cudnnCreate(void **handle);
int cudnnDestroy(void *handle);
int cudnnSetStream(void *handle, void *stream);
size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(int status);
int cudnnGetProperty(int which, int *value);

static int state;

int cudnnCreate(void **handle)
{
	if (!handle)
		return CUDNN_BAD_PARAM;
	*handle = &state;
	return CUDNN_SUCCESS;
}

int cudnnDestroy(void *handle)
{
	return handle == &state ? CUDNN_SUCCESS : CUDNN_BAD_PARAM;
}

int cudnnSetStream(void *handle, void *stream)
{
	return handle == &state ? CUDNN_SUCCESS : CUDNN_BAD_PARAM;
}

size_t cudnnGetVersion(void)
{
	return CUDNN_VERSION;
}

const char *cudnnGetErrorString(int status)
{
	return status == CUDNN_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_BAD_PARAM";
}

/* MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL */
int cudnnGetProperty(int which, int *value)
{
	static const int version[] = {
		CUDNN_VERSION / 10000, CUDNN_VERSION / 100 % 100, CUDNN_VERSION % 100
	};

	if (which < 0 || which > 2 || !value)
		return CUDNN_BAD_PARAM;
	*value = version[which];
	return CUDNN_SUCCESS;
}
