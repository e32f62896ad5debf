// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Whether and how fast memory of each kind is registered, and copied to and from once it
 * is.
 * Peers: cuMemHostAlloc() of as many bytes in the same run, and its copies.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "probe.h"

#define THREADS_MAX	16
#define PEER		"cuMemHostAlloc"
#define PIECE_BYTES	(256 * MIB)	/* as regions are registered: 64 to 256 MiB */

struct piece {
	char *start;
	size_t bytes;
	int registers;			/* else it is touched */
	CUcontext context;
	CUresult result;
};

static void *work_on(void *argument)
{
	struct piece *piece = argument;
	size_t at;

	if (piece->registers) {
		piece->result = cuda.cuCtxSetCurrent(piece->context);
		if (!piece->result)
			piece->result = cuda.cuMemHostRegister_v2(piece->start, piece->bytes,
								  CU_MEMHOSTREGISTER_PORTABLE);
		return NULL;
	}
	for (at = 0; at < piece->bytes; at += 4096)
		*(volatile char *)(piece->start + at) = 1;
	return NULL;
}

/* Seconds that all cores take, each with a part; negative if one failed. */
static double in_parallel(char *memory, size_t bytes, int registers)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned int threads = cores > THREADS_MAX ? THREADS_MAX : (unsigned int)cores, i;
	size_t share = bytes / threads & ~(2 * MIB - 1);
	struct piece pieces[THREADS_MAX];
	pthread_t ids[THREADS_MAX];
	double began = seconds(), took;
	CUcontext context = NULL;
	CUresult result = CUDA_SUCCESS;

	if (!share)
		return -1;
	if (registers && cuda.cuDevicePrimaryCtxRetain(&context, 0))
		return -1;
	for (i = 0; i < threads; i++) {
		pieces[i] = (struct piece){ .start = memory + i * share, .registers = registers,
			.bytes = i + 1 < threads ? share : bytes - i * share, .context = context };
		if (pthread_create(&ids[i], NULL, work_on, &pieces[i]))
			return -1;
	}
	for (i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		if (pieces[i].result)
			result = pieces[i].result;
	}
	took = seconds() - began;
	for (i = 0; registers && i < threads; i++)
		if (!pieces[i].result)
			cuda.cuMemHostUnregister(pieces[i].start);
	return result ? -1 : took;
}

static double speed(size_t bytes, double took)
{
	return took > 0 ? (double)bytes / took / 1e9 : 0;
}

static double register_once(char *memory, size_t bytes)
{
	double began = seconds(), took;

	if (cuda.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE))
		return -1;
	took = seconds() - began;
	cuda.cuMemHostUnregister(memory);
	return took;
}

/* The second time: what the driver prepares at the first is no part of it. */
static double allocate_once(size_t bytes)
{
	double began = 0, took = -1;
	unsigned int i;
	void *memory;

	for (i = 0; i < 2; i++) {
		began = seconds();
		if (cuda.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE))
			return -1;
		took = seconds() - began;
		cuda.cuMemFreeHost(memory);
	}
	return took;
}

static void tell(const char *what, enum memory_kind kind, size_t bytes, double took, double peer)
{
	char name[96];

	snprintf(name, sizeof(name), "%s, %s", what, memory_names[kind]);
	if (took > 0)
		figure(name, speed(bytes, took), "GB/s", PEER, speed(bytes, peer));
}

/* The first questions: without an answer here nothing else works. */
void ask_pieces(size_t bytes)
{
	size_t length = bytes > PIECE_BYTES ? PIECE_BYTES : bytes;
	double peer = allocate_once(length), began;
	unsigned int kind;

	if (peer > 0)
		figure("allocate a piece, " PEER, speed(length, peer), "GB/s", NULL, 0);
	else
		fact("refused", "allocate a piece, " PEER);
	for (kind = 0; kind <= MEMORY_MEMFD_2M; kind++) {
		char *memory = map_memory(kind, length);
		CUresult result;

		if (!memory) {
			fact(strerror(errno), "register a piece, %s", memory_names[kind]);
			continue;
		}
		tell("touch a piece", kind, length, in_parallel(memory, length, 0), 0);
		began = seconds();
		result = cuda.cuMemHostRegister_v2(memory, length, CU_MEMHOSTREGISTER_PORTABLE);
		if (result)
			fact(error_name(result), "register a piece, %s", memory_names[kind]);
		else
			tell("register a piece", kind, length, seconds() - began, peer);
		if (!result)
			cuda.cuMemHostUnregister(memory);
		munmap(memory, length);
	}
}

void ask_speeds(size_t bytes)
{
	double peer = allocate_once(bytes), took;
	unsigned int kind;
	char *memory;

	if (peer > 0)
		figure(PEER, speed(bytes, peer), "GB/s", NULL, 0);
	for (kind = 0; kind < MEMORY_DISK; kind++) {
		memory = map_memory(kind, bytes);
		if (!memory) {
			fact(strerror(errno), "%llu MiB of %s", (unsigned long long)bytes / MIB,
			     memory_names[kind]);
			continue;
		}
		tell("register untouched", kind, bytes, register_once(memory, bytes), peer);
		munmap(memory, bytes);
		memory = map_memory(kind, bytes);
		if (!memory)
			continue;
		took = in_parallel(memory, bytes, 0);
		tell("touch by all cores", kind, bytes, took, peer);
		tell("register touched", kind, bytes, register_once(memory, bytes), peer);
		tell("register touched, all cores", kind, bytes, in_parallel(memory, bytes, 1), peer);
		munmap(memory, bytes);
	}
}

/* Best of five, in GB/s; 0 if it failed. */
static double copy_speed(CUstream stream, CUdeviceptr device, char *host, size_t bytes, int in)
{
	double best = 0, began;
	unsigned int i;

	for (i = 0; i < 5; i++) {
		CUresult result;

		began = seconds();
		result = in ? cuda.cuMemcpyHtoDAsync_v2(device, host, bytes, stream) :
			 cuda.cuMemcpyDtoHAsync_v2(host, device, bytes, stream);
		if (!result)
			result = cuda.cuStreamSynchronize(stream);
		if (result)
			return 0;
		if (speed(bytes, seconds() - began) > best)
			best = speed(bytes, seconds() - began);
	}
	return best;
}

void ask_copies(size_t bytes)
{
	size_t length = bytes > 256 * MIB ? 256 * MIB : bytes;
	double peer_out = 0, peer_in = 0;
	CUdeviceptr device;
	CUstream stream;
	unsigned int kind;
	char *memory, name[96];
	void *allocated;

	if (!cuda.cuMemAlloc_v2 || !cuda.cuMemcpyDtoHAsync_v2 || !cuda.cuMemcpyHtoDAsync_v2 ||
	    !cuda.cuStreamCreate || !cuda.cuStreamSynchronize || !cuda.cuStreamDestroy_v2 ||
	    !cuda.cuMemFree_v2) {
		fact("libcuda.so.1 has none", "copies");
		return;
	}
	if (cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		return;
	if (cuda.cuMemAlloc_v2(&device, length)) {
		cuda.cuStreamDestroy_v2(stream);
		return;
	}
	if (!cuda.cuMemHostAlloc(&allocated, length, CU_MEMHOSTALLOC_PORTABLE)) {
		peer_out = copy_speed(stream, device, allocated, length, 0);
		peer_in = copy_speed(stream, device, allocated, length, 1);
		cuda.cuMemFreeHost(allocated);
		figure("copy to " PEER, peer_out, "GB/s", NULL, 0);
		figure("copy from " PEER, peer_in, "GB/s", NULL, 0);
	}
	for (kind = 0; kind < MEMORY_DISK; kind++) {
		memory = map_memory(kind, length);
		if (!memory)
			continue;
		memset(memory, 1, length);
		if (!cuda.cuMemHostRegister_v2(memory, length, CU_MEMHOSTREGISTER_PORTABLE)) {
			snprintf(name, sizeof(name), "copy to registered %s", memory_names[kind]);
			figure(name, copy_speed(stream, device, memory, length, 0), "GB/s",
			       "copy to " PEER, peer_out);
			snprintf(name, sizeof(name), "copy from registered %s", memory_names[kind]);
			figure(name, copy_speed(stream, device, memory, length, 1), "GB/s",
			       "copy from " PEER, peer_in);
			cuda.cuMemHostUnregister(memory);
		}
		munmap(memory, length);
	}
	cuda.cuMemFree_v2(device);
	cuda.cuStreamDestroy_v2(stream);
}
