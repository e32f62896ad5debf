/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What programs do to mappings that have pages of regions is what they would do to others:
 * parts are unmapped, advised, protected and moved, and there are children and threads.
 *
 * Started with: ACTMEM_PRELOAD_MAPS=4M,shared,private
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory_maps_test.h"

#define BYTES		(16 * MIB)
#define THREADS		4

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

static pthread_barrier_t all_are_there;

static void *map_and_unmap(void *context)
{
	unsigned int i, seed = (unsigned int)(uintptr_t)context;
	char *memory;

	/* A thread that is made has memory of its own, which may be as short as a hole here. */
	pthread_barrier_wait(&all_are_there);
	for (i = 0; i < 20; i++) {
		memory = map(4 * MIB + i * PAGE, i % 2 ? ANONYMOUS : MAP_SHARED | MAP_ANONYMOUS);
		if (!memory || !all_bytes(memory, PAGE, 0))
			return NULL;
		fill(memory, 4 * MIB, seed + i);
		/* The mappings of the other threads do not fit in the hole, which is unmapped twice. */
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

	CHECK(!pthread_barrier_init(&all_are_there, NULL, THREADS));
	for (i = 0; i < THREADS; i++)
		threads[i] = start_thread(map_and_unmap, (void *)(uintptr_t)(100 * (i + 1)));
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], &result) && result);
	return regions_are(0, 0);
}

#ifndef MEMORY_DIRECT

static void *map_cancelled(void *mapped)
{
	pthread_cancel(pthread_self());
	*(char **)mapped = map(BYTES, ANONYMOUS);
	pthread_testcancel();
	return NULL;
}

/* No mmap() is a place for that. The sanitizers cannot end such a thread. */
static bool not_cancelled(void)
{
	char *mapped = NULL;
	void *result;

	CHECK(!pthread_join(start_thread(map_cancelled, &mapped), &result));
	CHECK(result == PTHREAD_CANCELED && mapped && regions_are(1, BYTES));
	return !munmap(mapped, BYTES) && regions_are(0, 0);
}

#endif

int main(void)
{
	begin_maps();
	skip_without_cuda();
	run_quiet("parts can be unmapped", in_parts, NULL);
	run_quiet("advice is followed", advised, NULL);
	run_told("mremap of 16.0 MiB to 32.0 MiB", "shared memory does not become more", not_moved,
		 NULL);
	run_quiet("children have a copy of private memory", copied_for_children, NULL);
	run_quiet("and share what is shared", shared_with_children, NULL);
	run_quiet("and have no part in what is registered", kept_from_children, NULL);
	run_quiet("what they map is the kernel's", none_of_a_child, NULL);
	run_quiet("threads map and unmap at the same time", by_threads, NULL);
#ifndef MEMORY_DIRECT
	run_quiet("a thread that is cancelled does not end in mmap", not_cancelled, NULL);
#endif
	return tap_end();
}
