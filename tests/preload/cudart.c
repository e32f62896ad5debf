/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * NVIDIA's own cudart, by which PyTorch and CuPy have their host memory: of all that it
 * asks the driver for as it begins, it has the preload's functions where there are any,
 * and the driver's for the rest. It goes on from there with the real driver alone, whose
 * inside it checks.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "parts/recorder.h"
#include "preload_test.h"

/* Once more, with what writes its lookups down in front of both. */
static void start_recorded(void)
{
	char self[PATH_MAX], preloads[2 * PATH_MAX];

	if (!realpath("/proc/self/exe", self))
		tap_bail("/proc/self/exe");
	snprintf(preloads, sizeof(preloads), "%.*s/recorder.so:%s",
		 (int)(strrchr(self, '/') - self), self, getenv("LD_PRELOAD"));
	setenv("LD_PRELOAD", preloads, 1);
	execl(self, self, "recorded", NULL);
	tap_bail("%s", self);
}

static bool is_one_of_ours(const struct record *record)
{
	size_t i;

	for (i = 0; hooked_addresses[i]; i++)
		if (!strcmp(hooked_addresses[i], record->name))
			return true;
	return false;
}

static void test_answers(const struct recorded *recorded)
{
	unsigned int i, asked = 0, others = 0;

	for (i = 0; i < recorded->count; i++) {
		const struct record *record = &recorded->records[i];

		if (is_one_of_ours(record)) {
			asked++;
			is_hook(record->function, "%s of %d, flags %llu, as cudart asks",
				record->name, record->version, record->flags);
		} else if (record->function) {
			others += strncmp(owner(record->function), "libcuda.so", 10) != 0;
		}
	}
	ok(asked >= 8, "cudart asked for %u of them, among %u", asked, recorded->count);
	ok(!others, "all others are the driver's (%u are not)", others);
}

static void test_memory(void)
{
	void *block, *other, *registered = aligned_alloc(4096, 8 * MIB);
	unsigned int flags;

	ok(!cudaMallocHost(&other, 8 * MIB), "cudaMallocHost()");
	ok(!cudaHostAlloc(&block, 8 * MIB, cudaHostAllocPortable), "cudaHostAlloc()");
	memset(block, 1, 8 * MIB);
	ok(!cudaHostGetFlags(&flags, block) && flags & cudaHostAllocPortable,
	   "cudaHostGetFlags(): 0x%x", flags);
	ok(!cudaHostRegister(registered, 8 * MIB, cudaHostRegisterPortable), "cudaHostRegister()");
	ok(!cudaHostUnregister(registered), "cudaHostUnregister()");
	ok(!cudaFreeHost(block) && !cudaFreeHost(other), "cudaFreeHost()");
	ok(cudaFreeHost(registered) == cudaErrorInvalidValue, "of what is not CUDA's");
	free(registered);
}

int main(int argc, char **argv)
{
	const struct recorded *recorded;
	struct cuda cuda;
	cudaError_t error;
	void *block;

	if (argc < 2)
		start_recorded();
	recorded = symbol(RTLD_DEFAULT, "recorded");
	error = cudaHostAlloc(&block, 8 * MIB, cudaHostAllocDefault);
	printf("# cudaHostAlloc() returns %d, %s\n", error, cudaGetErrorString(error));
	if (!recorded->count) {
		tap_skip("no GPU here, and no stand-in");
		return tap_end();
	}
	test_answers(recorded);
	cuda = cuda_or_skip();
	if (!error) {
		ok(!cudaFreeHost(block), "cudaFreeHost()");
		test_memory();
	}
	if (error && cuda.standin_counts)
		tap_skip("no GPU here: cudart begins with the real driver alone");
	ok(!error || cuda.standin_counts, "cudart has memory where the driver is the real one");
	return tap_end();
}
