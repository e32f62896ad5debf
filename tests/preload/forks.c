/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Forks: a child of a program that has not used CUDA yet can use it, and one of a
 * program that has is told so by the driver itself.
 *
 * Started with:
 * Started with: ACTMEM_CUDA=0
 */
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload_test.h"

#define LARGE	(8 * MIB)

static bool begins(const struct cuda *cuda)
{
	CUcontext context;

	return !cuda->cuInit(0) && !cuda->cuDevicePrimaryCtxRetain(&context, 0) &&
	       !cuda->cuCtxPushCurrent_v2(context);
}

static bool child_uses_cuda(void *context)
{
	struct cuda cuda = cuda_or_skip();
	void *memory, *small;

	if (!begins(&cuda) || cuda.cuMemHostAlloc(&memory, LARGE, CU_MEMHOSTALLOC_PORTABLE) ||
	    cuda.cuMemHostAlloc(&small, 8, 0))
		return false;
	memset(memory, 1, LARGE);
	return !cuda.cuMemFreeHost(small) && !cuda.cuMemFreeHost(memory);
}

static bool child_looks_up(void *context)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	return library && dlsym(library, "cuMemHostAlloc") == context && !dlerror();
}

static bool child_has_no_cuda(void *context)
{
	const struct cuda *cuda = context;
	void *memory;

	return cuda->cuMemHostAlloc(&memory, LARGE, 0) == CUDA_ERROR_NOT_INITIALIZED &&
	       cuda->cuMemHostAlloc(&memory, 8, 0) == CUDA_ERROR_NOT_INITIALIZED &&
	       cuda->cuMemHostRegister_v2(&memory, 8, 0) == CUDA_ERROR_NOT_INITIALIZED &&
	       cuda->cuMemHostUnregister(&memory) == CUDA_ERROR_NOT_INITIALIZED &&
	       cuda->cuMemFreeHost(&memory) == CUDA_ERROR_NOT_INITIALIZED;
}

/* It has its parent's memory until it is another program, as of posix_spawn(). */
static bool short_child(void *wanted)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	pid_t child = vfork();
	int status;

	if (!child)
		_exit(dlsym(library, "cuMemHostAlloc") != wanted);
	return waitpid(child, &status, 0) == child && !status;
}

int main(void)
{
	struct cuda cuda;
	char *memory;

	ok(in_child(child_uses_cuda, NULL), "a child uses CUDA, which its parent has not loaded");
	cuda = cuda_or_skip();
	ok(in_child(child_uses_cuda, NULL), "or has looked up");
	ok(in_child(child_looks_up, cuda.cuMemHostAlloc), "lookups of a child find the same");
	ok(short_child(cuda.cuMemHostAlloc), "and those of one by vfork()");

	if (!begins(&cuda))
		tap_bail("CUDA does not begin");
	cuda_returns(cuda.cuMemHostAlloc((void **)&memory, LARGE, CU_MEMHOSTALLOC_PORTABLE),
		     CUDA_SUCCESS);
	memset(memory, 7, LARGE);
	ok(in_child(child_has_no_cuda, &cuda), "CUDA is of no use in a child of one that uses it");
	ok(in_child(child_looks_up, cuda.cuMemHostAlloc), "though it can be looked up");
	ok(memory[0] == 7 && memory[LARGE - 1] == 7, "the parent's memory is as it was");
	cuda_returns(cuda.cuMemFreeHost(memory), CUDA_SUCCESS);
	pop_primary(&cuda);
	return tap_end();
}
