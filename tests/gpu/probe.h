/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Questions to the CUDA driver of this machine: what its manual leaves open and the
 * library or the preload relies on. Each answer is a line of JSON:
 *   {"fact": "flags of registered memory", "answer": "CUDA_SUCCESS 0x3"}
 *   {"figure": "register 4K pages", "value": 3.1, "unit": "GB/s", "peer": ..., ...}
 */
#ifndef TESTS_GPU_PROBE_H
#define TESTS_GPU_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#define KIB	(1ULL << 10)
#define MIB	(1ULL << 20)

#define PROBE_CALLS(f)							\
	f(cuInit) f(cuDriverGetVersion) f(cuDeviceGet) f(cuDeviceGetAttribute)	\
	f(cuDeviceGetName) f(cuDeviceGetPCIBusId) f(cuGetErrorName)	\
	f(cuDevicePrimaryCtxRetain) f(cuDevicePrimaryCtxRelease_v2)	\
	f(cuDevicePrimaryCtxReset_v2) f(cuDevicePrimaryCtxGetState)	\
	f(cuCtxSetCurrent) f(cuCtxGetCurrent) f(cuCtxGetDevice) f(cuCtxGetId)	\
	f(cuCtxSynchronize) f(cuMemGetInfo_v2)				\
	f(cuMemHostAlloc) f(cuMemAllocHost_v2) f(cuMemFreeHost)		\
	f(cuMemHostRegister_v2) f(cuMemHostUnregister)			\
	f(cuMemHostGetFlags) f(cuMemHostGetDevicePointer_v2)		\
	f(cuPointerGetAttribute)

/* A stand-in may be without these: then nothing is copied. */
#define PROBE_COPY_CALLS(f)						\
	f(cuMemAlloc_v2) f(cuMemFree_v2) f(cuMemcpyDtoHAsync_v2)	\
	f(cuMemcpyHtoDAsync_v2) f(cuStreamCreate) f(cuStreamSynchronize)	\
	f(cuStreamDestroy_v2) f(cuStreamBeginCapture_v2) f(cuStreamEndCapture)	\
	f(cuGraphDestroy)

#define PROBE_FIELD(name)	__typeof__(&(name)) name;

struct probe_calls {
	PROBE_CALLS(PROBE_FIELD)
	PROBE_COPY_CALLS(PROBE_FIELD)
};

#undef PROBE_FIELD

extern struct probe_calls cuda;

/* Memory of each kind that a region can be of, and of kinds that programs have. */
enum memory_kind {
	MEMORY_PRIVATE,			/* anonymous, 4K pages */
	MEMORY_PRIVATE_THP,
	MEMORY_PRIVATE_2M,		/* hugetlb */
	MEMORY_MEMFD,
	MEMORY_MEMFD_THP,
	MEMORY_MEMFD_2M,		/* hugetlb */
	MEMORY_SHM,			/* a file of /dev/shm */
	MEMORY_DISK,			/* a file of the current folder */
	MEMORY_KINDS
};

extern const char *const memory_names[MEMORY_KINDS];

/* Aligned to 2 MiB, not touched yet; NULL and errno. */
void *map_memory(enum memory_kind kind, size_t bytes);

/* -1, and errno, if @kind cannot be; else for mmap(), MAP_SHARED. */
int open_memory(enum memory_kind kind, size_t bytes);

/* An address of that many bytes, aligned to 2 MiB, that nothing lies at. */
void *reserve(size_t bytes);

const char *error_name(CUresult result);
double seconds(void);

/* Prints an answer; @format is about the answer. */
void fact(const char *format_answer, const char *question_format, ...)
	__attribute__((format(printf, 2, 3)));

/* A speed beside that of a peer in the same run; 0: not to be had. */
void figure(const char *name, double value, const char *unit, const char *peer, double peer_value);

/* The groups of questions. */
void ask_pieces(size_t bytes);
void ask_device(void);
void ask_flags(void);
void ask_registering(void);
void ask_freeing(void);
void ask_mapping(void);
void ask_contexts(void);
void ask_ranges(void);
void ask_capture(void);
void ask_smaps(void);
void ask_speeds(size_t bytes);
void ask_copies(size_t bytes);
/* After which a driver may not be what it was. */
void ask_unmapping(void);
void ask_resetting(void);

#endif /* TESTS_GPU_PROBE_H */
