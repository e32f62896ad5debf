/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Whatever call of CUDA fails, and with whatever code: the error has CUDA's own name
 * for it, and nothing stays behind, or what does is told. With the stand-in alone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_test.h"

static struct cuda cuda;

static const struct {
	CUresult code;
	int error;
	const char *words;
} codes[] = {
	{ CUDA_ERROR_INVALID_VALUE, -EINVAL, "CUDA_ERROR_INVALID_VALUE" },
	{ CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM, "chunk_bytes" },
	{ CUDA_ERROR_CONTEXT_IS_DESTROYED, -ESTALE, "destroyed or reset" },
	{ CUDA_ERROR_DEINITIALIZED, -ESTALE, "CUDA_ERROR_DEINITIALIZED" },
	{ CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, -EEXIST, "another part of this process" },
	{ CUDA_ERROR_NOT_PERMITTED, -EPERM, "CUDA_ERROR_NOT_PERMITTED" },
	{ CUDA_ERROR_OPERATING_SYSTEM, -EIO, "OS call failed" },
	{ CUDA_ERROR_OPERATING_SYSTEM, -EIO, "dmesg" },
	{ CUDA_ERROR_DEVICE_UNAVAILABLE, -EBUSY, "compute mode" },
	{ CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, -EBUSY, "cuStreamBeginCapture" },
	{ CUDA_ERROR_ILLEGAL_ADDRESS, -EIO, "CUDA_ERROR_ILLEGAL_ADDRESS (700" },
	{ (CUresult)12345, -EIO, "12345" },
};

static void nothing_is_left(struct actmem_runtime *runtime)
{
	struct actmem_runtime_info info = runtime_info(runtime);

	ok(!info.regions && !info.chunks && !info.bytes, "nothing is counted as registered");
	nothing_is_retained(&cuda);
	ok(!current_context(&cuda), "no context is left current");
}

static void test_register(struct actmem_region *region, struct actmem_runtime *runtime)
{
	static const char *const calls[] = { "cuCtxGetCurrent", "cuDevicePrimaryCtxRetain",
					     "cuCtxPushCurrent_v2", "cuMemHostRegister_v2" };
	uint64_t failures = runtime_info(runtime).failures_total;
	unsigned int i, nth;

	for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		for (nth = 1; nth <= LENGTH / CHUNK; nth++) {
			cuda.standin_fail("cuMemHostRegister_v2", nth, 1, codes[i].code);
			returns(actmem_region_register(region, runtime, 0), codes[i].error);
			says(codes[i].words);
			nothing_is_left(runtime);
			failures++;
		}
	}
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		cuda.standin_fail(calls[i], 1, 1, CUDA_ERROR_UNKNOWN);
		returns(actmem_region_register(region, runtime, 0), -EIO);
		says("CUDA_ERROR_UNKNOWN");
		nothing_is_left(runtime);
		failures++;
	}
	ok(runtime_info(runtime).failures_total == failures, "each failure is counted");
	returns(actmem_region_unmap(region), -EINVAL);
}

/* The third chunk is refused. */
static void refuse(struct actmem_region *region, struct actmem_runtime *runtime, CUresult code,
		   int error)
{
	cuda.standin_fail("cuMemHostRegister_v2", 3, 1, code);
	returns(actmem_region_register(region, runtime, 0), error);
	nothing_is_left(runtime);
}

/* If the kernel pins no memory, its log says so, and the error quotes it. */
static void test_kernel_log(struct actmem_region *region, struct actmem_runtime *runtime)
{
	static const char format[] = "Cannot map memory with base addr %p and size of 0x200 pages";
	char path[] = "/tmp/actmem-log-XXXXXX", line[128];
	char *memory = memory_or_bail(region);
	int fd = mkstemp(path);

	snprintf(line, sizeof(line), format, memory + 2 * CHUNK);
	kernel_log_is(path, line);
	refuse(region, runtime, CUDA_ERROR_INVALID_VALUE, -EINVAL);
	says("CUDA_ERROR_INVALID_VALUE");
	says(line);
	ok(!strstr(actmem_error(), "dmesg"), "and names no other place: %s", actmem_error());
	cuda.standin_fail("cuMemHostUnregister", 1, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
	cuda.standin_fail("cuMemHostRegister_v2", 3, 1, CUDA_ERROR_OUT_OF_MEMORY);
	returns(actmem_region_register(region, runtime, 0), -ENOMEM);
	says(line);
	says("4.0 MiB of the region stay registered");
	returns(actmem_region_unregister(region), 0);
	/* That chunk was registered, so the line is about something else. */
	snprintf(line, sizeof(line), format, memory);
	refuse(region, runtime, CUDA_ERROR_INVALID_VALUE, -EINVAL);
	ok(!strstr(actmem_error(), "Cannot map"), "lines about other memory are not quoted: %s",
	   actmem_error());
	unlink(path);
	close(fd);
	refuse(region, runtime, CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM);
	says("dmesg");
	refuse(region, runtime, CUDA_ERROR_INVALID_VALUE, -EINVAL);
	says("dmesg");
	refuse(region, runtime, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, -EEXIST);
	ok(!strstr(actmem_error(), "dmesg"), "the kernel's log is not named for other failures");
	kernel_log_is(NULL, NULL);
	returns(actmem_region_unmap(region), 0);
}

/* What cannot be undone stays known, and can be undone later. */
static void test_undo(struct actmem_region *region, struct actmem_runtime *runtime)
{
	cuda.standin_fail("cuMemHostRegister_v2", 4, 1, CUDA_ERROR_OUT_OF_MEMORY);
	cuda.standin_fail("cuMemHostUnregister", 2, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
	returns(actmem_region_register(region, runtime, 0), -ENOMEM);
	says("CUDA_ERROR_OUT_OF_MEMORY");
	says("4.0 MiB of the region stay registered until actmem_region_unregister()");
	says("CUDA_ERROR_ILLEGAL_ADDRESS");
	ok(runtime_info(runtime).bytes == 2 * CHUNK, "and are counted");
	returns(actmem_region_close(region), -EBUSY);
	returns(actmem_runtime_close(runtime), -EBUSY);
	returns(actmem_region_unregister(region), 0);
	nothing_is_left(runtime);

	returns(actmem_region_register(region, runtime, 0), 0);
	cuda.standin_fail("cuMemHostUnregister", 2, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
	returns(actmem_region_unregister(region), -EIO);
	says("cuDevicePrimaryCtxReset()");
	ok(runtime_info(runtime).regions == 1 && runtime_info(runtime).chunks == 3 &&
	   runtime_info(runtime).bytes == 3 * CHUNK, "what stays registered is counted");
	returns(actmem_region_close(region), -EBUSY);
	returns(actmem_region_unregister(region), 0);
	nothing_is_left(runtime);
}

/* Each call that fails in the middle of unregistering, as it does when a process ends. */
static void test_unregister(struct actmem_region *region, struct actmem_runtime *runtime)
{
	static const char *const calls[] = { "cuPointerGetAttribute", "cuCtxGetCurrent",
					     "cuCtxPushCurrent_v2", "cuMemHostUnregister" };
	unsigned int i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		returns(actmem_region_register(region, runtime, 0), 0);
		cuda.standin_fail(calls[i], 1, 1, CUDA_ERROR_OPERATING_SYSTEM);
		returns(actmem_region_unregister(region), -EIO);
		says("CUDA_ERROR_OPERATING_SYSTEM");
		returns(actmem_region_unregister(region), 0);
		ok(!*actmem_error(), "without a word");
		nothing_is_left(runtime);
		returns(actmem_region_register(region, runtime, 0), 0);
		cuda.standin_fail(calls[i], 1, LENGTH / CHUNK, CUDA_ERROR_DEINITIALIZED);
		returns(actmem_region_unregister(region), 0);
		says("CUDA_ERROR_DEINITIALIZED");
		cuda.standin_fail("", 1, 0, 0);
		cuda.cuDevicePrimaryCtxReset_v2(0);
		nothing_is_registered(&cuda);
	}
	ok(runtime_info(runtime).lost_total == sizeof(calls) / sizeof(calls[0]),
	   "what CUDA forgot as it ended is counted");
}

/* Whoever has no context may not be answered: the memory is not lost by that. */
static void test_unanswered(struct actmem_region *region, struct actmem_runtime *runtime)
{
	const CUresult answers[] = { CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED };
	uint64_t lost = runtime_info(runtime).lost_total;
	unsigned int i;

	for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		returns(actmem_region_register(region, runtime, 0), 0);
		cuda.standin_fail("cuPointerGetAttribute", 1, 2 * LENGTH / CHUNK, answers[i]);
		ok(!registration_of(region).lost_chunks, "no chunk is lost");
		returns(actmem_region_unregister(region), 0);
		ok(!*actmem_error(), "without a word");
		cuda.standin_fail("", 1, 0, 0);
		nothing_is_left(runtime);
	}
	ok(runtime_info(runtime).lost_total == lost, "nor counted so");
}

static void test_open(struct actmem *am)
{
	static const struct {
		enum actmem_runtime_kind kind;
		const char *call;
		CUresult code;
		int error;		/* 0: AUTO does without */
		const char *words;
	} cases[] = {
		{ ACTMEM_RUNTIME_CUDA, "cuInit", CUDA_ERROR_NO_DEVICE, -ENODEV, "/dev/nvidia0" },
		{ ACTMEM_RUNTIME_AUTO, "cuInit", CUDA_ERROR_NO_DEVICE, 0, "CUDA_VISIBLE_DEVICES" },
		{ ACTMEM_RUNTIME_CUDA, "cuInit", CUDA_ERROR_STUB_LIBRARY, -ENOENT, "stub" },
		{ ACTMEM_RUNTIME_AUTO, "cuInit", CUDA_ERROR_STUB_LIBRARY, 0, "stub" },
		{ ACTMEM_RUNTIME_AUTO, "cuInit", CUDA_ERROR_NOT_INITIALIZED, -EOWNERDEAD, "spawn" },
		{ ACTMEM_RUNTIME_CUDA, "cuInit", CUDA_ERROR_SYSTEM_NOT_READY, -ENODEV,
		  "nvidia-fabricmanager" },
		{ ACTMEM_RUNTIME_CUDA, "cuInit", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, -ENODEV,
		  "kernel module" },
		{ ACTMEM_RUNTIME_AUTO, "cuInit", CUDA_ERROR_UNKNOWN, -EIO, "CUDA_ERROR_UNKNOWN" },
		{ ACTMEM_RUNTIME_AUTO, "cuDeviceGetCount", CUDA_ERROR_UNKNOWN, -EIO, "count" },
		{ ACTMEM_RUNTIME_AUTO, "cuDeviceGet", CUDA_ERROR_UNKNOWN, -EIO, "device 0" },
		{ ACTMEM_RUNTIME_AUTO, "cuDeviceGetName", CUDA_ERROR_UNKNOWN, -EIO, "device 0" },
		{ ACTMEM_RUNTIME_AUTO, "cuDeviceGetPCIBusId", CUDA_ERROR_UNKNOWN, -EIO, "device 0" },
	};
	struct actmem_runtime *runtime;
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct actmem_runtime_options options = {
			.size = sizeof(options), .kind = cases[i].kind,
		};

		cuda.standin_fail(cases[i].call, 1, 1, cases[i].code);
		returns(actmem_runtime_open(am, &options, &runtime), cases[i].error);
		if (cases[i].error) {
			says(cases[i].words);
			continue;
		}
		ok(strstr(actmem_runtime_describe(runtime), cases[i].words) &&
		   runtime_info(runtime).kind == ACTMEM_RUNTIME_NULL,
		   "AUTO does without, and tells why: %s", actmem_runtime_describe(runtime));
		returns(actmem_runtime_close(runtime), 0);
	}
}

int main(void)
{
	struct usage before;
	struct actmem_runtime *runtime;
	struct actmem_region *region;
	struct actmem *am;

	cuda = cuda_or_skip();
	if (!cuda.standin_fail) {
		tap_skip("a real GPU is not made to fail");
		return tap_end();
	}
	before = usage_now();
	am = open_or_bail();
	test_open(am);
	region = region_or_bail(am, "failing");
	runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	test_register(region, runtime);
	test_kernel_log(region, runtime);
	test_undo(region, runtime);
	test_unregister(region, runtime);
	test_unanswered(region, runtime);
	returns(actmem_runtime_close(runtime), 0);
	returns(actmem_region_close(region), 0);
	return end_tests(am, before);
}
