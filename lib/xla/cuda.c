// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The CUDA driver API for the handlers; see cuda.h.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "xla/cuda.h"

#define CUDA_LIBRARY	"libcuda.so.1"

struct cuda_stream_functions cuda;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_loaded;
static cuda_stream_contexts *stream_contexts;	/* NULL: CUDA is older than 12.5 */

static int find_functions(void *library, char *words, size_t words_size)
{
#define CUDA_NAME(name, parameters)	#name,
#define CUDA_SLOT(name, parameters)	offsetof(struct cuda_stream_functions, name),
	static const char *const names[] = { CUDA_STREAM_FUNCTIONS(CUDA_NAME) };
	static const size_t slots[] = { CUDA_STREAM_FUNCTIONS(CUDA_SLOT) };
#undef CUDA_NAME
#undef CUDA_SLOT
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *function = dlsym(library, names[i]);

		if (!function) {
			snprintf(words, words_size,
				 "actmem: " CUDA_LIBRARY " has no %s; it is older than CUDA 12",
				 names[i]);
			return -EOPNOTSUPP;
		}
		memcpy((char *)&cuda + slots[i], &function, sizeof(function));
	}
	return 0;
}

static int load_library(char *words, size_t words_size)
{
	void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	int ret;

	if (!library) {
		snprintf(words, words_size, "actmem: " CUDA_LIBRARY " cannot be loaded (%s)",
			 dlerror());
		return -ENOENT;
	}
	ret = find_functions(library, words, words_size);
	if (ret)
		dlclose(library);
	else
		*(void **)&stream_contexts = dlsym(library, "cuStreamGetCtx_v2");
	return ret;
}

int cuda_load(char *words, size_t words_size)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!is_loaded) {
		ret = load_library(words, words_size);
		is_loaded = !ret;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

int cuda_is_free(void)
{
	if (pthread_mutex_trylock(&lock))
		return 0;
	pthread_mutex_unlock(&lock);
	return 1;
}

cuda_result cuda_context_of(cuda_stream stream, cuda_context *context)
{
	struct CUgreenCtx_st *green;

	return stream_contexts ? stream_contexts(stream, context, &green) :
	       cuda.cuStreamGetCtx(stream, context);
}

static int errno_of(cuda_result result)
{
	switch (result) {
	case CUDA_INVALID_VALUE:
		return -EINVAL;
	case CUDA_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_DEINITIALIZED:
	case CUDA_INVALID_CONTEXT:
	case CUDA_CONTEXT_IS_DESTROYED:
		return -ESTALE;
	default:
		return -EIO;
	}
}

int cuda_failed(cuda_result result, const char *what, uint32_t device, char *words,
		size_t words_size)
{
	const char *name = NULL, *text = NULL;

	if (cuda.cuGetErrorName(result, &name) || !name)
		name = "an error without a name";
	if (cuda.cuGetErrorString(result, &text) || !text)
		text = "no description";
	snprintf(words, words_size, "actmem: cannot %s on device %u: %s (%u, %s)", what, device,
		 name, result, text);
	return errno_of(result);
}
