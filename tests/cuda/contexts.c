/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which context a region is registered in, that no other becomes current by it, and
 * what is made of contexts that end while regions are registered in them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"

static struct cuda cuda;

static CUcontext context_of(const void *address)
{
	CUcontext context = NULL;

	cuda.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT,
				   (CUdeviceptr)(uintptr_t)address);
	return context;
}

static bool primary_is_active(void)
{
	unsigned int flags;
	int active = -1;

	if (cuda.cuDevicePrimaryCtxGetState(0, &flags, &active))
		tap_bail("cuDevicePrimaryCtxGetState");
	return active;
}

static void register_or_bail(struct actmem_region *region, struct actmem_runtime *runtime)
{
	if (actmem_region_register(region, runtime, 0))
		tap_bail("actmem_region_register");
}

/* A thread without a context: the primary one, for as long as it is needed. */
static void test_none(struct actmem_region *region, struct actmem_runtime *runtime)
{
	char *memory = memory_or_bail(region);

	ok(!primary_is_active(), "no context is made by opening a runtime");
	register_or_bail(region, runtime);
	ok(!current_context(&cuda), "no context stays current");
	ok(primary_is_active() && context_of(memory), "the primary one is there");
	returns(actmem_region_unregister(region), 0);
	ok(!primary_is_active(), "and goes when it is needed no longer");
	ok(!current_context(&cuda), "no context stays current");
	actmem_region_unmap(region);
}

/* The caller's own serves; the primary one is not made for nothing. */
static void test_own(struct actmem_region *region, struct actmem_runtime *runtime)
{
	char *memory = memory_or_bail(region);
	CUcontext own, other, popped, primary;

	cuda_ok(cuda.cuCtxCreate_v4(&own, NULL, 0, 0));
	if (cuda.standin_fail)
		cuda.standin_fail("cuDevicePrimaryCtxRetain", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
	register_or_bail(region, runtime);
	if (cuda.standin_fail)
		cuda.standin_fail("", 1, 0, 0);
	ok(context_of(memory) == own && !primary_is_active(), "the caller's own context is used");
	cuda_ok(cuda.cuCtxCreate_v4(&other, NULL, 0, 0));
	returns(actmem_region_unregister(region), 0);
	ok(current_context(&cuda) == other, "and unregistered while another is current");
	ok(!runtime_info(runtime).lost_total, "nothing was lost");
	nothing_is_registered(&cuda);

	cuda_ok(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	register_or_bail(region, runtime);
	ok(context_of(memory) == other, "also beside an active primary one");
	returns(actmem_region_unregister(region), 0);
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
	ok(!primary_is_active(), "which is not kept then");
	cuda_ok(cuda.cuCtxDestroy_v2(other));
	cuda_ok(cuda.cuCtxDestroy_v2(own));
	ok(cuda.cuCtxPopCurrent_v2(&popped) == CUDA_ERROR_INVALID_CONTEXT,
	   "the stack is as it was before");
	actmem_region_unmap(region);
}

/* A program that gives the primary context back does not take the memory with it. */
static void test_shared_primary(struct actmem_region *region, struct actmem_runtime *runtime)
{
	CUcontext primary, popped;

	cuda_ok(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	cuda_ok(cuda.cuCtxPushCurrent_v2(primary));
	register_or_bail(region, runtime);
	cuda_ok(cuda.cuCtxPopCurrent_v2(&popped));
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
	ok(primary_is_active() && !registration_of(region).lost_chunks,
	   "the primary context is kept as long as a region is registered in it");
	returns(actmem_region_unregister(region), 0);
	ok(!primary_is_active(), "and no longer");
}

/* @end has ended the context: all that was registered in it has gone. */
static void test_lost(struct actmem_region *region, struct actmem_runtime *runtime,
		      const char *how)
{
	uint64_t lost = runtime_info(runtime).lost_total, pointer;
	struct actmem_registration registration = registration_of(region);
	char *memory = memory_or_bail(region);

	ok(registration.lost_chunks == registration.chunks && registration.chunks == LENGTH / CHUNK,
	   "%s: all chunks are lost, and told to be", how);
	returns(actmem_runtime_pointer(runtime, memory, &pointer, NULL), -ESTALE);
	returns(actmem_region_close(region), -EBUSY);
	returns(actmem_region_unregister(region), 0);
	says("their context has ended");
	ok(runtime_info(runtime).lost_total == lost + 1, "which is counted");
	memset(memory, 1, LENGTH);
	actmem_region_unmap(region);
	register_or_bail(region, runtime);
	returns(actmem_region_unregister(region), 0);
	ok(runtime_info(runtime).lost_total == lost + 1 && !current_context(&cuda),
	   "it can be registered anew");
	nothing_is_registered(&cuda);
}

static void test_ends(struct actmem_region *region, struct actmem_runtime *runtime)
{
	CUcontext own, popped;

	cuda_ok(cuda.cuCtxCreate_v4(&own, NULL, 0, 0));
	register_or_bail(region, runtime);
	cuda_ok(cuda.cuCtxDestroy_v2(own));
	test_lost(region, runtime, "a context that is destroyed");

	register_or_bail(region, runtime);
	cuda_ok(cuda.cuDevicePrimaryCtxReset_v2(0));
	test_lost(region, runtime, "a primary context that is reset");

	register_or_bail(region, runtime);
	cuda_ok(cuda.cuDevicePrimaryCtxReset_v2(0));
	cuda_ok(cuda.cuDevicePrimaryCtxRetain(&own, 0));
	test_lost(region, runtime, "one that is reset and in use again");
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(0));

	/* Still on this thread's stack, though of no use. */
	cuda_ok(cuda.cuDevicePrimaryCtxRetain(&own, 0));
	cuda_ok(cuda.cuCtxPushCurrent_v2(own));
	cuda_ok(cuda.cuDevicePrimaryCtxReset_v2(0));
	register_or_bail(region, runtime);
	ok(current_context(&cuda) == own, "a current context that is gone does not stand in the way");
	returns(actmem_region_unregister(region), 0);
	cuda_ok(cuda.cuCtxPopCurrent_v2(&popped));
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
}

/* That of another device is not the one to register with. */
static void test_other_device(struct actmem_region *region, struct actmem_runtime *runtime)
{
	char *memory = memory_or_bail(region);
	CUcontext other;
	int count = 0;

	cuda.cuDeviceGetCount(&count);
	if (count < 2) {
		printf("# one device alone\n");
		actmem_region_unmap(region);
		return;
	}
	cuda_ok(cuda.cuCtxCreate_v4(&other, NULL, 0, 1));
	register_or_bail(region, runtime);
	ok(context_of(memory) != other && primary_is_active(),
	   "the context of another device is left alone");
	ok(current_context(&cuda) == other, "and stays current");
	returns(actmem_region_unregister(region), 0);
	ok(current_context(&cuda) == other, "and again");
	cuda_ok(cuda.cuCtxDestroy_v2(other));
	actmem_region_unmap(region);
}

static void *unregister_there(void *region)
{
	return (void *)(intptr_t)(actmem_region_unregister(region) || current_context(&cuda));
}

static void test_other_thread(struct actmem_region *region, struct actmem_runtime *runtime)
{
	pthread_t thread;
	CUcontext own;
	void *failed;

	cuda_ok(cuda.cuCtxCreate_v4(&own, NULL, 0, 0));
	register_or_bail(region, runtime);
	thread = start_thread(unregister_there, region);
	pthread_join(thread, &failed);
	ok(!failed, "another thread, which has no context, unregisters it");
	nothing_is_registered(&cuda);
	cuda_ok(cuda.cuCtxDestroy_v2(own));
}

int main(void)
{
	struct actmem_runtime *runtime;
	struct actmem_region *region;
	struct usage before;
	struct actmem *am;

	setenv("STANDIN_CUDA_DEVICES", "2", 1);
	am = cuda_begin(&cuda, &before);
	region = region_or_bail(am, "in contexts");
	runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	test_none(region, runtime);
	test_own(region, runtime);
	test_shared_primary(region, runtime);
	test_ends(region, runtime);
	test_other_device(region, runtime);
	test_other_thread(region, runtime);
	returns(actmem_runtime_close(runtime), 0);
	returns(actmem_region_close(region), 0);
	return cuda_end(&cuda, am, before);
}
