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

#include "memory_test.h"

#define PAGE		4096UL
#define BYTES		(16 * MIB)
#define THREADS		4
#define RW		(PROT_READ | PROT_WRITE)
#define ANONYMOUS	(MAP_PRIVATE | MAP_ANONYMOUS)

static char name[64], name_of_file[80];

static char *map(size_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, RW, flags, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static bool regions_are(unsigned int count, uint64_t bytes)
{
	uint64_t listed;

	return own_regions(&listed) == count && listed == bytes;
}

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
	return regions_are(0, 0) && !malloc(SIZE_MAX / 2) && errno == ENOMEM;
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

static bool is_gone(const char *page)
{
	unsigned char there;

	return mincore((void *)page, PAGE, &there) && errno == ENOMEM;
}

static bool in_parts(void)
{
	char *memory = map(BYTES, ANONYMOUS);

	fill(memory, BYTES, 1);
	/* A part in the middle, and both ends of what is behind it. */
	CHECK(!munmap(memory + 4 * MIB, 2 * MIB) && is_gone(memory + 4 * MIB));
	CHECK(!munmap(memory + 6 * MIB, 2 * MIB) && !munmap(memory + 14 * MIB, 2 * MIB));
	CHECK(is_filled(memory, 4 * MIB, 1) && regions_are(1, BYTES));
	CHECK(!is_gone(memory + 4 * MIB - PAGE) && !is_gone(memory + 8 * MIB));
	CHECK(!cuda.cuMemHostRegister_v2(memory, 4 * MIB, 0));
	CHECK(cuda.cuMemHostRegister_v2(memory + 4 * MIB, 8 * MIB, 0));
	CHECK(!cuda.cuMemHostUnregister(memory));
	/* Small pages of the kernel's can be unmapped; so can these, to the program. */
	CHECK(!munmap(memory + MIB, MIB + PAGE) && !munmap(memory, PAGE));
	CHECK(!munmap(memory + PAGE, MIB - PAGE) && is_gone(memory));
	CHECK(!munmap(memory, 4 * MIB) && is_gone(memory + 4 * MIB - PAGE));
	CHECK(regions_are(1, BYTES));
	/* The program puts something else over the rest, and over what is behind it. */
	CHECK(mmap(memory + 8 * MIB, 8 * MIB, RW, ANONYMOUS | MAP_FIXED, -1, 0) ==
	      memory + 8 * MIB);
	CHECK(regions_are(0, 0) && !is_shared(memory + 8 * MIB));
	return !munmap(memory + 8 * MIB, 8 * MIB);
}

/* By the kernel, which says so where a program would get a signal. */
static bool can_write(char *byte)
{
	int ends[2];
	bool can;

	if (pipe(ends))
		return false;
	can = write(ends[1], "x", 1) == 1 && read(ends[0], byte, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return can;
}

static bool advised(void)
{
	char *own = map(BYTES, ANONYMOUS), *shared = map(BYTES, MAP_SHARED | MAP_ANONYMOUS);

	fill(own, BYTES, 1);
	fill(shared, BYTES, 2);
	CHECK(!madvise(own, BYTES, MADV_FREE) && !madvise(own, BYTES, MADV_HUGEPAGE));
	/* The usual way to give memory back for a while. */
	CHECK(!mprotect(own + 4 * MIB, MIB, PROT_NONE));
	CHECK(!madvise(own + 4 * MIB, MIB, MADV_DONTNEED));
	CHECK(!mprotect(own + 4 * MIB, MIB, RW) && all_bytes(own + 4 * MIB, MIB, 0));
	CHECK(is_filled(own, 4 * MIB, 1) &&
	      !all_bytes(own + 5 * MIB, MIB, 0));
	CHECK(madvise(own, MIB, MADV_REMOVE) && errno == EINVAL && is_filled(own, MIB, 1));
	CHECK(!madvise(shared, BYTES, MADV_DONTNEED) && is_filled(shared, BYTES, 2));
	CHECK(!madvise(shared + MIB, MIB, MADV_REMOVE) && all_bytes(shared + MIB, MIB, 0));
	CHECK(is_filled(shared, MIB, 2) && !all_bytes(shared + 2 * MIB, MIB, 0));
	/* Less than a huge page; of more, none can be written to. */
	CHECK(!mprotect(own + MIB, PAGE, PROT_READ));
	own[MIB - 1] = 'x';
	own[MIB + PAGE] = 'x';
	CHECK(!mprotect(own, 2 * MIB, PROT_READ) && !can_write(own) && !can_write(own + MIB));
	CHECK(!mprotect(own, MIB, RW) && can_write(own) && can_write(own + MIB - 1));
	CHECK(madvise(own + 1, PAGE, MADV_DONTNEED) && errno == EINVAL);
	CHECK(madvise(own, PAGE, 12345) && errno == EINVAL);
	CHECK(!munmap(own, BYTES) && !munmap(shared, BYTES));
	return regions_are(0, 0);
}

/* The kernel does not make a shared mapping longer either, of which others have a part. */
static bool not_moved(void)
{
	char *memory = map(BYTES, MAP_SHARED | MAP_ANONYMOUS);

	fill(memory, BYTES, 1);
	CHECK(mremap(memory, BYTES, 2 * BYTES, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	CHECK(is_filled(memory, BYTES, 1) && !munmap(memory, BYTES));
	memory = map(BYTES, ANONYMOUS);
	CHECK(mremap(memory, BYTES, 2 * BYTES, 0) == MAP_FAILED && errno == ENOMEM);
	return !munmap(memory, BYTES) && regions_are(0, 0);
}

struct meeting {
	int to_child[2], to_parent[2];
};

static bool pass(int to, int from)
{
	char byte = 0;

	return (to < 0 || write(to, &byte, 1) == 1) && (from < 0 || read(from, &byte, 1) == 1);
}

/* A child has what was there when it was made, and each writes for itself alone. */
static bool copied_for_children(void)
{
	char *memory = map(BYTES + 5 * PAGE, ANONYMOUS);
	struct meeting meet;
	pid_t child;
	int status;

	CHECK(memory && !pipe(meet.to_child) && !pipe(meet.to_parent));
	fill(memory, BYTES, 1);
	child = fork();
	if (!child) {
		bool good = pass(-1, meet.to_child[0]) && is_filled(memory, BYTES, 1);

		fill(memory, BYTES, 2);
		good &= pass(meet.to_parent[1], meet.to_child[0]) && is_filled(memory, BYTES, 2);
		_exit(!good || munmap(memory, BYTES));
	}
	fill(memory, BYTES, 3);
	CHECK(child > 0 && pass(meet.to_child[1], meet.to_parent[0]));
	CHECK(is_filled(memory, BYTES, 3) && pass(meet.to_child[1], -1));
	CHECK(waitpid(child, &status, 0) == child && !status);
	return is_filled(memory, BYTES, 3) && !munmap(memory, BYTES + 5 * PAGE) &&
	       regions_are(0, 0);
}

static bool shared_with_children(void)
{
	char *memory = map(BYTES, MAP_SHARED | MAP_ANONYMOUS);
	pid_t child;
	int status;

	fill(memory, BYTES, 1);
	child = fork();
	if (!child) {
		bool good = is_filled(memory, BYTES, 1);

		fill(memory, BYTES, 2);
		_exit(!good);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	return is_filled(memory, BYTES, 2) && !munmap(memory, BYTES) && regions_are(0, 0);
}

static bool child_has(const char *memory)
{
	pid_t child = fork();
	int status;

	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(const volatile char *)memory != 'x');
	}
	return waitpid(child, &status, 0) == child && !status;
}

static bool kept_from_children(void)
{
	char *memory = map(BYTES, ANONYMOUS);

	memory[4 * MIB] = 'x';
	CHECK(child_has(memory + 4 * MIB));
	CHECK(!madvise(memory, BYTES, MADV_DONTFORK) && !child_has(memory + 4 * MIB));
	CHECK(!madvise(memory, BYTES, MADV_DOFORK) && child_has(memory + 4 * MIB));
	CHECK(!cuda.cuMemHostRegister_v2(memory, BYTES, 0) && !child_has(memory + 4 * MIB));
	CHECK(!cuda.cuMemHostUnregister(memory) && child_has(memory + 4 * MIB));
	return !munmap(memory, BYTES);
}

/* A child's own mappings are the kernel's: to it CUDA is of no use. */
static bool none_of_a_child(void)
{
	char *memory = map(BYTES, ANONYMOUS);
	pid_t child = fork();
	int status;

	if (!child) {
		char *own = map(BYTES, ANONYMOUS);

		_exit(!own || is_shared(own) || munmap(own, BYTES));
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	return memory && regions_are(1, BYTES) && !munmap(memory, BYTES);
}

static void *map_and_unmap(void *context)
{
	unsigned int i, seed = (unsigned int)(uintptr_t)context;
	char *memory;

	for (i = 0; i < 20; i++) {
		memory = map(4 * MIB + i * PAGE, i % 2 ? ANONYMOUS : MAP_SHARED | MAP_ANONYMOUS);
		if (!memory || !all_bytes(memory, PAGE, 0))
			return NULL;
		fill(memory, 4 * MIB, seed + i);
		if (!is_filled(memory, 4 * MIB, seed + i) || munmap(memory + 2 * MIB, MIB) ||
		    munmap(memory, 4 * MIB + i * PAGE))
			return NULL;
	}
	return context;
}

static bool by_threads(void)
{
	pthread_t threads[THREADS];
	unsigned int i;
	void *result;

	for (i = 0; i < THREADS; i++)
		threads[i] = start_thread(map_and_unmap, (void *)(uintptr_t)(100 * (i + 1)));
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], &result) && result);
	return regions_are(0, 0);
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

		if (!memory || !pass(ends[1], -1))
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
	run_quiet("parts can be unmapped", in_parts, NULL);
	run_quiet("advice is followed", advised, NULL);
	run_told("mremap of 16.0 MiB to 32.0 MiB", "shared memory does not become more", not_moved,
		 NULL);
	run_quiet("children have a copy of private memory", copied_for_children, NULL);
	run_quiet("and share what is shared", shared_with_children, NULL);
	run_quiet("and have no part in what is registered", kept_from_children, NULL);
	run_quiet("what they map is the kernel's", none_of_a_child, NULL);
	run_quiet("threads map and unmap at the same time", by_threads, NULL);
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
