/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of CUDA's memory in regions share. Each case is a process of its own,
 * since the environment is read once and CUDA is of no use after a fork: the program
 * itself calls no CUDA.
 *
 * Built one way, CUDA's functions are those that a lookup finds under the preload;
 * built the other way (MEMORY_DIRECT), the preload's files are linked, for the
 * sanitizers, and take what this finds for the driver's.
 */
#ifndef MEMORY_TEST_H
#define MEMORY_TEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>

#include "common.h"
#include "../cuda/standin/control.h"

#define MEMORY_CALLS(f)							\
	f(cuInit) f(cuDeviceGet) f(cuDevicePrimaryCtxRetain)		\
	f(cuDevicePrimaryCtxRelease_v2) f(cuDevicePrimaryCtxReset_v2)	\
	f(cuCtxCreate_v4) f(cuCtxDestroy_v2) f(cuCtxSetCurrent) f(cuCtxGetCurrent)	\
	f(cuMemHostAlloc) f(cuMemAllocHost_v2) f(cuMemFreeHost)		\
	f(cuMemHostRegister_v2) f(cuMemHostUnregister)			\
	f(cuMemHostGetDevicePointer_v2) f(cuMemHostGetFlags)		\
	f(cuPointerGetAttribute) f(cuGetProcAddress_v2)			\
	f(cuMemAlloc_v2) f(cuMemFree_v2) f(cuStreamCreate) f(cuStreamSynchronize)	\
	f(cuStreamDestroy_v2) f(cuMemcpyHtoDAsync_v2) f(cuMemcpyDtoHAsync_v2)	\
	f(cuStreamBeginCapture_v2) f(cuStreamEndCapture) f(cuGraphDestroy)	\
	f(cuThreadExchangeStreamCaptureMode) f(cuLaunchHostFunc)

#define MEMORY_CALL_FIELD(name)	__typeof__(&(name)) name;

struct memory_cuda {
	MEMORY_CALLS(MEMORY_CALL_FIELD)
	standin_counts_function *standin_counts;	/* NULL with the real libcuda.so.1 */
	standin_fail_function *standin_fail;
	standin_slow_function *standin_slow;
};

/* Of the process of a case, loaded and initialised; the primary context is current. */
extern struct memory_cuda api;
extern CUcontext primary;

/* Ends the program, all skipped, where there is no libcuda.so.1. */
void skip_without_cuda(void);

/* Else it is the real one, which does not fail when it is asked to. */
bool stand_in_is_there(void);

/*
 * Runs a case in a child with these variables, "NAME=VALUE" or "NAME" to unset it, up
 * to a NULL; what it wrote to stderr is then in stderr_text. One result.
 */
void run_case(const char *what, bool (*body)(void), ...);
extern char stderr_text[65536];

/* Such a case of which nothing is told on stderr, or one line with this in it: two results. */
#define run_quiet(...)		(run_case(__VA_ARGS__), told(0, ""))
#define run_told(part, ...)	(run_case(__VA_ARGS__), told(1, (part)))

/* One result: stderr has so many lines of ours, and this in them. */
#define told(lines, part)	told_at((lines), (part), __FILE__, __LINE__)
bool told_at(unsigned int lines, const char *part, const char *file, int line);

/* Inside a case: false with a line that tells where. */
#define CHECK(condition)						\
	do {								\
		if (!check_at((condition), #condition, __FILE__, __LINE__))	\
			return false;					\
	} while (0)
bool check_at(bool passed, const char *what, const char *file, int line);

struct standin_counts counts_now(void);

/* A private mapping of nothing yet, apart from others, @off bytes behind a multiple of 2 MiB. */
char *map_at(size_t bytes, size_t off);
char *map_untouched(size_t bytes);

/*
 * Returns true if the file that is mapped at the address is a region's. That the mapping is
 * shared proves nothing: so is memory of cuMemHostAlloc().
 */
bool is_in_region(const void *address);

/* Allocate a block, and free it again. Return true if it was in a region, or the driver's own. */
bool block_is_in_region(size_t bytes);
bool block_is_of_driver(size_t bytes);

/* Registers an untouched range, and unregisters it. Returns true if no region was put under it. */
bool range_is_of_driver(size_t bytes);

/* Fills, or compares, with a pattern of @seed. */
void fill(void *memory, size_t bytes, unsigned int seed);
bool is_filled(const void *memory, size_t bytes, unsigned int seed);

/* Regions that this process is listed with, and their bytes. */
unsigned int own_regions(uint64_t *bytes);

#endif /* MEMORY_TEST_H */
