/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Programs that map memory, touch it and have CUDA register it afterwards: as SGLang does,
 * TensorRT-LLM, FlexKV and PyTorch. It has pages of a region from its beginning.
 *
 * Started with: ACTMEM_PRELOAD_MAPS=4M,shared,populate,hugetlb,private
 * Started with: ACTMEM_PRELOAD_MAPS=4M,shared,populate,hugetlb,private,malloc ACTMEM_STRICT=1
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory_maps_test.h"

#define BYTES		(16 * MIB)
#define THREADS		4

static char name[64], name_of_file[80];

struct share {
	char *memory;
	size_t bytes;
	bool populates;
};

static void *touch_share(void *context)
{
	struct share *share = context;
	size_t at;

	if (share->populates && !madvise(share->memory, share->bytes, MADV_POPULATE_WRITE))
		return context;
	for (at = 0; at < share->bytes; at += PAGE)
		share->memory[at] = 0;
	return context;
}

static bool touch(char *memory, size_t bytes, bool populates)
{
	struct share shares[THREADS];
	pthread_t threads[THREADS];
	unsigned int i;
	void *result;

	for (i = 0; i < THREADS; i++) {
		shares[i] = (struct share){ memory + i * (bytes / THREADS), bytes / THREADS,
					   populates };
		threads[i] = start_thread(touch_share, &shares[i]);
	}
	for (i = 0; i < THREADS; i++)
		if (pthread_join(threads[i], &result) || !result)
			return false;
	return true;
}

/* What a GPU reads there and writes there is what is there. */
static bool copies_are_right(char *memory, size_t bytes)
{
	CUdeviceptr device;
	CUstream stream;

	CHECK(!cuda.cuMemAlloc_v2(&device, bytes) && !cuda.cuStreamCreate(&stream, 0));
	fill(memory, bytes, 3);
	CHECK(!cuda.cuMemcpyHtoDAsync_v2(device, memory, bytes, stream));
	CHECK(!cuda.cuStreamSynchronize(stream));
	memset(memory, 0, bytes);
	CHECK(!cuda.cuMemcpyDtoHAsync_v2(memory, device, bytes, stream));
	CHECK(!cuda.cuStreamSynchronize(stream) && is_filled(memory, bytes, 3));
	return !cuda.cuStreamDestroy_v2(stream) && !cuda.cuMemFree_v2(device);
}

static bool is_registered_once(char *memory, size_t bytes)
{
	uint64_t before = counts_now().own_registrations;

	CHECK(!cuda.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
	CHECK(!cuda.standin_counts || (counts_now().own_registrations == before + 1 &&
				       counts_now().registered == 1 &&
				       counts_now().registered_bytes == bytes));
	CHECK(copies_are_right(memory, bytes));
	CHECK(cuda.cuMemHostRegister_v2(memory, bytes, 0) ==
	      CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK(!cuda.cuMemHostUnregister(memory) && is_filled(memory, bytes, 3));
	return true;
}

static bool all_is_given_back(char *memory, size_t bytes)
{
	CHECK(!munmap(memory, bytes) && regions_are(0, 0));
	return !counts_now().registered && !counts_now().registered_bytes;
}

static bool as_sglang(void)
{
	char *memory = map(BYTES, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE);

	CHECK(memory && is_shared(memory) && regions_are(1, BYTES));
	CHECK(all_bytes(memory, BYTES, 0) && is_registered_once(memory, BYTES));
	return all_is_given_back(memory, BYTES);
}

static bool as_flexkv(void)
{
	char *memory = map(BYTES, ANONYMOUS | MAP_HUGETLB);

	CHECK(memory && is_shared(memory + BYTES - 1) && regions_are(1, BYTES));
	CHECK(touch(memory, BYTES, false) && is_registered_once(memory, BYTES));
	return all_is_given_back(memory, BYTES);
}

/* In pieces; and what it has becomes more and less, as its cache does. */
static bool as_tensorrt(void)
{
	const size_t piece = 4 * MIB;
	char *memory = map(BYTES, ANONYMOUS), *moved;
	size_t at;

	CHECK(memory && !madvise(memory, BYTES, MADV_NOHUGEPAGE) && touch(memory, BYTES, true));
	CHECK(regions_are(1, BYTES));
	for (at = 0; at < BYTES; at += piece)
		CHECK(!cuda.cuMemHostRegister_v2(memory + at, piece, 0));
	CHECK(!cuda.standin_counts || counts_now().registered == BYTES / piece);
	fill(memory, BYTES, 5);
	for (at = 0; at < BYTES; at += piece)
		CHECK(!cuda.cuMemHostUnregister(memory + at));
	moved = mremap(memory, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && is_filled(moved, BYTES, 5) && regions_are(1, 2 * BYTES));
	CHECK(all_bytes(moved + BYTES, BYTES, 0) && is_registered_once(moved, 2 * BYTES));
	fill(moved, 2 * BYTES, 6);
	CHECK(mremap(moved, 2 * BYTES, piece, MREMAP_MAYMOVE) == moved);
	CHECK(is_filled(moved, piece, 6) && is_registered_once(moved, piece));
	return all_is_given_back(moved, piece);
}

/* With the mapping that an aligned block of a length that is no whole huge page has. */
static bool as_pytorch(void)
{
	const size_t bytes = 9 * MIB + 3 * PAGE;
	char *memory = map(bytes, ANONYMOUS);

	CHECK(memory && !((uintptr_t)memory % (2 * MIB)) && regions_are(1, 8 * MIB));
	CHECK(touch(memory, bytes, false) && is_registered_once(memory, bytes));
	CHECK(is_shared(memory + 8 * MIB - 1) && !is_shared(memory + 8 * MIB));
	return all_is_given_back(memory, bytes);
}

static bool takes_blocks(void)
{
	return strstr(getenv("ACTMEM_PRELOAD_MAPS"), "malloc");
}

/* With pinned_use_cuda_host_register it takes them from malloc. */
static bool block_is_registered(char *block, size_t bytes)
{
	CHECK(block && regions_are(takes_blocks(), takes_blocks() ? 8 * MIB : 0));
	CHECK(touch(block, bytes, false) && is_registered_once(block, bytes));
	CHECK(malloc_usable_size(block) >= bytes);
	free(block);
	return regions_are(0, 0) && !counts_now().registered;
}

static bool as_pytorch_of_malloc(void)
{
	const size_t bytes = 9 * MIB + 3 * PAGE;
	void *block;

	CHECK(block_is_registered(malloc(bytes), bytes));
	CHECK(!posix_memalign(&block, 4096, bytes) && block_is_registered(block, bytes));
	CHECK(block_is_registered(aligned_alloc(64, bytes), bytes));
	block = calloc(3, 3 * MIB + PAGE);
	CHECK(all_bytes(block, bytes, 0) && block_is_registered(block, bytes));
	return true;
}

static bool blocks_change(void)
{
	char *block = malloc(8 * MIB);
	pid_t child;
	int status;

	fill(block, 8 * MIB, 1);
	block = realloc(block, 16 * MIB);
	CHECK(block && is_filled(block, 8 * MIB, 1));
	fill(block, 16 * MIB, 2);
	block = realloc(block, 5 * MIB);
	CHECK(block && is_filled(block, 5 * MIB, 2));
	child = fork();
	if (!child) {
		bool good = is_filled(block, 5 * MIB, 2);

		fill(block, 5 * MIB, 3);
		free(block);
		block = malloc(8 * MIB);
		fill(block, 8 * MIB, 3);
		free(block);
		_exit(!good);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	CHECK(is_filled(block, 5 * MIB, 2));
	block = realloc(block, 100);
	CHECK(block && is_filled(block, 96, 2) && regions_are(0, 0));
	block = realloc(block, 8 * MIB);
	CHECK(block && is_filled(block, 96, 2));
	/* Others, which are not long. */
	free(malloc(3 * MIB));
	free(block);
	/* The sanitizer's malloc ends the program for it. */
	CHECK(!takes_blocks() || (!malloc(SIZE_MAX / 2) && errno == ENOMEM));
	return regions_are(0, 0);
}

/* Other processes have the file too: it is theirs. */
static bool as_vllm(void)
{
	int file = memfd_create("shared", MFD_CLOEXEC);
	char *memory;

	CHECK(file >= 0 && !ftruncate(file, BYTES));
	memory = mmap(NULL, BYTES, RW, MAP_SHARED | MAP_POPULATE, file, 0);
	CHECK(memory != MAP_FAILED && regions_are(0, 0) && is_registered_once(memory, BYTES));
	CHECK(pwrite(file, "x", 1, 5) == 1 && memory[5] == 'x');
	return !munmap(memory, BYTES) && !close(file);
}

static bool left_alone(void)
{
	static const struct {
		size_t bytes;
		int protection, flags;
		bool hint;
	} others[] = {
		{ 2 * MIB, RW, ANONYMOUS | MAP_POPULATE, false },
		{ 8 * MIB, PROT_NONE, ANONYMOUS, false },
		{ 8 * MIB, PROT_READ, ANONYMOUS | MAP_POPULATE, false },
		{ 8 * MIB, RW | PROT_EXEC, ANONYMOUS, false },
		{ 8 * MIB, RW, ANONYMOUS | MAP_NORESERVE, false },
		{ 8 * MIB, RW, ANONYMOUS | MAP_STACK, false },
		{ 8 * MIB, RW, ANONYMOUS | MAP_GROWSDOWN, false },
		{ 8 * MIB, RW, ANONYMOUS | MAP_LOCKED, false },
		{ 8 * MIB, RW, ANONYMOUS | MAP_32BIT, false },
		{ 8 * MIB, RW, ANONYMOUS, true },
		{ 8 * MIB, RW, ANONYMOUS | MAP_FIXED, true },
	};
	char *room = mmap(NULL, 8 * MIB, PROT_NONE, ANONYMOUS, -1, 0), *memory;
	size_t i;

	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		memory = mmap(others[i].hint ? room : NULL, others[i].bytes, others[i].protection,
			      others[i].flags, -1, 0);
		CHECK(memory != MAP_FAILED && regions_are(0, 0) && !is_shared(memory));
		CHECK(memory == room || !munmap(memory, others[i].bytes));
	}
	errno = 0;
	CHECK(mmap(NULL, 0, RW, ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
	return munmap(room + 1, PAGE) && errno == EINVAL && !munmap(room, 8 * MIB);
}

/* The next mapping of that length finds the file, and none of what was in it. */
static bool named(void)
{
	unsigned int round;
	char *memory;

	for (round = 0; round < 3; round++) {
		memory = map(BYTES, round % 2 ? ANONYMOUS : MAP_SHARED | MAP_ANONYMOUS);
		CHECK(memory && !access(name_of_file, F_OK) && all_bytes(memory, BYTES, 0));
		fill(memory, BYTES, 1);
		CHECK(!munmap(memory, BYTES));
	}
	return !unlink(name_of_file);
}

static unsigned int regions_of(pid_t pid)
{
	struct actmem_region_info *regions;
	unsigned int found = 0;
	size_t count, i;

	if (actmem_region_list(&regions, &count))
		return 0;
	for (i = 0; i < count; i++)
		found += regions[i].pid == pid;
	free(regions);
	return found;
}

/* Of one that is killed nothing stays. */
static bool killed(void)
{
	int ends[2], status;
	pid_t child;
	char byte;

	CHECK(!pipe(ends));
	child = fork();
	if (!child) {
		char *memory = map(BYTES, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE);

		if (!memory || write(ends[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	close(ends[1]);
	CHECK(child > 0 && read(ends[0], &byte, 1) == 1 && regions_of(child) == 1);
	CHECK(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
	return !regions_of(child) && !close(ends[0]);
}

static bool without_pages(void)
{
	char *memory = map(BYTES, MAP_SHARED | MAP_ANONYMOUS);

	if (getenv("ACTMEM_STRICT"))
		return !memory && errno == ENOMEM;
	CHECK(memory && regions_are(0, 0));
	fill(memory, BYTES, 1);
	CHECK(is_registered_once(memory, BYTES));
	return !munmap(memory, BYTES);
}

static bool refused_by_cuda(void)
{
	char *memory = map(BYTES, ANONYMOUS);

	fill(memory, BYTES, 1);
	cuda.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_NOT_PERMITTED);
	CHECK(cuda.cuMemHostRegister_v2(memory, BYTES, 0) == CUDA_ERROR_NOT_PERMITTED);
	CHECK(is_filled(memory, BYTES, 1) && !counts_now().registered);
	return !munmap(memory, BYTES) && regions_are(0, 0);
}

int main(void)
{
	begin_maps();
	skip_without_cuda();
	run_quiet("SGLang's shared memory has a region", as_sglang, NULL);
	run_quiet("so have FlexKV's huge pages", as_flexkv, NULL);
	run_quiet("and TensorRT-LLM's host cache", as_tensorrt, NULL);
	run_quiet("and what PyTorch touches by threads", as_pytorch, NULL);
	run_quiet("and what it registers of malloc, if that is asked for", as_pytorch_of_malloc,
		  NULL);
	run_quiet("blocks become longer, shorter, and a child's", blocks_change, NULL);
	run_quiet("vLLM's file is left alone", as_vllm, NULL);
	run_quiet("and so is what is more than memory", left_alone, NULL);
	run_quiet("of a process that is killed nothing stays", killed, NULL);
	snprintf(name, sizeof(name), "ACTMEM_NAME=/dev/shm/actmem-maps-%d", getpid());
	snprintf(name_of_file, sizeof(name_of_file), "%s.cuda.16M.0", strchr(name, '/'));
	run_quiet("those of a job with a name are files", named, "ACTMEM_BACKEND=memfd",
		  "ACTMEM_PAGES=4K", name, NULL);
	run_told("mmap of 16.0 MiB ", "what cannot have a region is told", without_pages,
		 "ACTMEM_NODES=1023", NULL);
	if (!stand_in_is_there()) {
		tap_skip("the real GPU does not fail when asked to");
		return tap_end();
	}
	run_told("(error 800)", "what CUDA refuses of a region is told",
		 refused_by_cuda, NULL);
	return tap_end();
}
