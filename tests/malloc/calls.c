/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Every call of the malloc family under the malloc mode: which blocks are whose,
 * alignment, zeroes, growing and shrinking across the threshold, errors, and what
 * goes back to the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "malloc_test.h"

#define LARGE	(3 * MIB + 12345)

static uint64_t blocks(void)
{
	return counters_now().blocks;
}

/* One block of @size more, aligned, writable to the end, and gone again. */
static void check_block(void *memory, size_t align, size_t size, bool large, const char *call)
{
	uint64_t now = blocks();
	size_t usable;

	if (!ok(memory, "%s of %zu bytes returns memory", call, size))
		return;
	usable = malloc_usable_size(memory);
	fill(memory, usable, 1);
	ok(usable >= size && (uintptr_t)memory % align == 0 && is_filled(memory, usable, 1) &&
	   now == large, "%s of %zu bytes is %s, aligned to %zu, of %zu usable bytes", call, size,
	   large ? "ours" : "the program's own", align, usable);
	free(memory);
	ok(blocks() == 0, "%s of %zu bytes is freed", call, size);
}

static void *by_posix_memalign(size_t align, size_t size)
{
	void *memory = NULL;

	return posix_memalign(&memory, align, size) ? NULL : memory;
}

static void test_calls(void)
{
	size_t align;

	check_block(malloc(LARGE), 16, LARGE, false, "malloc");
	check_block(malloc(0), 16, 0, false, "malloc");
	check_block(calloc(1000, 4096), 16, 4096000, false, "calloc");
	check_block(realloc(NULL, LARGE), 16, LARGE, false, "realloc");
	check_block(reallocarray(NULL, 3, MIB), 16, 3 * MIB, false, "reallocarray");
	check_block(memalign(64, MIB), 64, MIB, true, "memalign");
	check_block(memalign(64, MIB - 1), 64, MIB - 1, false, "memalign");
	check_block(valloc(LARGE), 4096, LARGE, true, "valloc");
	check_block(valloc(100), 4096, 100, false, "valloc");
	check_block(pvalloc(MIB - 4095), 4096, MIB, true, "pvalloc");
	check_block(pvalloc(100), 4096, 4096, false, "pvalloc");
	check_block(by_posix_memalign(16, LARGE), 16, LARGE, false, "posix_memalign");
	for (align = 32; align <= 2 * MIB; align *= 4) {
		check_block(by_posix_memalign(align, LARGE), align, LARGE, true, "posix_memalign");
		check_block(by_posix_memalign(align, 100), align, 100, false, "posix_memalign");
		check_block(aligned_alloc(align, LARGE), align, LARGE, true, "aligned_alloc");
		check_block(memalign(align, LARGE), align, LARGE, true, "memalign");
	}
	check_block(by_posix_memalign(4 * MIB, LARGE), 4 * MIB, LARGE, false, "posix_memalign");
	check_block(memalign(1, LARGE), 1, LARGE, false, "memalign");
}

static void test_errors(void)
{
	volatile size_t most = PTRDIFF_MAX, half = SIZE_MAX / 2;
	void *memory = &memory, *block;

	ok(posix_memalign(&memory, 24, LARGE) == EINVAL && memory == &memory,
	   "posix_memalign refuses an alignment that is no power of two, and stores nothing");
	ok(posix_memalign(&memory, 64, most) == ENOMEM, "posix_memalign of far too much is ENOMEM");
	errno = 0;
	ok(!memalign(64, most) && errno == ENOMEM, "memalign of far too much, too");
	errno = 0;
	ok(!memalign(64, 1UL << 45) && errno == ENOMEM, "and of more than there is");
	block = memalign(64, LARGE);
	fill(block, LARGE, 2);
	errno = 0;
	ok(!reallocarray(block, half, 3) && errno == ENOMEM, "reallocarray likewise");
	errno = 0;
	ok(!realloc(block, most) && errno == ENOMEM && is_filled(block, LARGE, 2),
	   "realloc to far too much is ENOMEM, and the block is as it was");
	errno = EDOM;
	free(block);
	ok(errno == EDOM, "free leaves errno alone");
	free(NULL);
	ok(malloc_usable_size(NULL) == 0, "NULL has no usable bytes");
	ok(blocks() == 0, "nothing is left");
}

static void test_realloc(void)
{
	static const size_t sizes[] = {
		100, MIB - 1, MIB, MIB + 1, 5 * MIB, 20 * MIB, 19 * MIB, 200 * MIB, 7 * MIB, MIB,
		1000, 2 * MIB, 2 * MIB + 1, 60 * MIB, 10,
	};
	size_t count = sizeof(sizes) / sizeof(sizes[0]), was = 10, least, i;
	char *memory = malloc(was), *neighbour, *moved;

	fill(memory, was, 3);
	for (i = 0; i < count; i++) {
		memory = realloc(memory, sizes[i]);
		least = sizes[i] < was ? sizes[i] : was;
		/* Where it became shorter, its new last byte need not have been written. */
		if (least < was)
			least = (least - 1) / 4096 * 4096 + 1;
		ok(memory && malloc_usable_size(memory) >= sizes[i] && is_filled(memory, least, 3) &&
		   !blocks(), "realloc from %zu to %zu bytes", was, sizes[i]);
		was = sizes[i];
		fill(memory, was, 3);
	}
	free(memory);

	memory = memalign(64, 40 * MIB);
	neighbour = memalign(64, 2 * MIB);
	fill(memory, 40 * MIB, 5);
	moved = realloc(memory, 41 * MIB);
	ok(is_filled(moved, 40 * MIB, 5) && blocks() == 1, "a block that has no room to grow moves away");
	free(moved);
	free(neighbour);
	memory = memalign(64, LARGE);
	fill(memory, LARGE, 6);
	memory = realloc(memory, 1000);
	ok(is_filled(memory, 9, 6) && !blocks(), "so does one that becomes short");
	free(memory);

	memory = memalign(64, 2 * MIB);
	fill(memory, 2 * MIB, 4);
	moved = realloc(memory, 9 * MIB);
	ok(moved == memory && is_filled(moved, 2 * MIB, 4), "it grows in place where there is room");
	neighbour = memalign(64, 2 * MIB);
	memory = realloc(moved, MIB + 512);
	ok(memory == moved, "it shrinks in place");
	free(memory);
	free(neighbour);
	ok(!realloc(memalign(64, LARGE), 0) && blocks() == 0, "realloc to 0 frees");
}

static void test_given_back(void)
{
	size_t before, held, pooled, after, i;
	char *memory[20];
	struct malloc_counters counters;

	malloc_trim(0);
	before = resident_bytes();
	for (i = 0; i < 20; i++) {
		memory[i] = memalign(64, 5 * MIB);
		memset(memory[i], 1, 5 * MIB);
	}
	held = resident_bytes();
	ok(held >= before + 100 * MIB, "100 MiB that are used are there (%zu MiB)", held / MIB);
	for (i = 0; i < 20; i++)
		free(memory[i]);
	pooled = resident_bytes();
	counters = counters_now();
	ok(pooled >= 100 * MIB && counters.pooled_bytes >= 100 * MIB && !counters.block_bytes,
	   "freed, they are pooled, and told to be (%zu MiB)", counters.pooled_bytes / MIB);
	ok(malloc_trim(0) == 1, "malloc_trim tells that there was some");
	after = resident_bytes();
	counters = counters_now();
	ok(after <= before + 2 * MIB && !counters.pooled_bytes && !counters.mapped_bytes,
	   "and gives back all, address space too (%zu KiB are left)", (after - before) / 1024);
}

static bool limited_runs_out(void)
{
	struct rlimit limit = { .rlim_cur = 1500 * MIB, .rlim_max = 1500 * MIB };
	char *memory[400];
	size_t count, i;
	bool good = true;

	if (setrlimit(RLIMIT_AS, &limit))
		return false;
	for (count = 0; count < 400 && (memory[count] = memalign(64, 10 * MIB)); count++)
		fill(memory[count], 10 * MIB, (unsigned int)count);
	if (count < 100 || count == 400 || errno != ENOMEM)
		return false;
	for (i = 0; i < count; i++) {
		good = good && is_filled(memory[i], 10 * MIB, (unsigned int)i);
		free(memory[i]);
	}
	memory[0] = memalign(64, 10 * MIB);
	good = good && memory[0] && counters_now().refused_total > 0;
	free(memory[0]);
	return good;
}

/* The pool has most of the address space then, and nothing that is as long. */
static bool limited_has_what_is_free(void)
{
	struct rlimit limit = { .rlim_cur = 1500 * MIB, .rlim_max = 1500 * MIB };
	void *memory[20];
	size_t i;

	if (setrlimit(RLIMIT_AS, &limit))
		return false;
	for (i = 0; i < 20; i++)
		memory[i] = memalign(64, 40 * MIB);
	for (i = 0; i < 20; i++)
		free(memory[i]);
	memory[0] = memalign(64, 1100 * MIB);
	free(memory[0]);
	return memory[0];
}

static void *allocate_cancelled(void *context)
{
	pthread_cancel(pthread_self());
	free(memalign(64, LARGE));
	return NULL;
}

/* In a child, whose first large block it is. */
static bool cancelled_allocates(void)
{
	pthread_t thread;
	void *result;

	if (pthread_create(&thread, NULL, allocate_cancelled, NULL) ||
	    pthread_join(thread, &result) || result == PTHREAD_CANCELED)
		return false;
	free(memalign(64, LARGE));
	return counters_now().blocks_total == 2;
}

static bool few_descriptors_are_left_alone(void)
{
	struct rlimit limit = { .rlim_cur = 100, .rlim_max = 100 };

	if (setrlimit(RLIMIT_NOFILE, &limit))
		return false;
	free(memalign(64, LARGE));
	return counters_now().blocks_total == 1 && fcntl(99, F_GETFD) >= 0;
}

/* To publish the counters would raise SIGXFSZ. */
static bool no_files_are_written(void)
{
	struct rlimit limit = { 0 };
	void *memory;

	if (setrlimit(RLIMIT_FSIZE, &limit))
		return false;
	memory = memalign(64, LARGE);
	return memory && malloc_usable_size(memory) % 256 == 0 && !counters_now().start.pid;
}

static bool bad_free_aborts(void)
{
	char *memory = memalign(64, LARGE);
	int status;
	pid_t child = fork();

	if (!child) {
		fclose(stderr);
		close(STDERR_FILENO);
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		free(memory);
		free(memory);
		_exit(0);
	}
	free(memory);
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGABRT;
}

int main(void)
{
	/* One block that stays makes stdio's buffers no part of what is counted. */
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	test_calls();
	test_errors();
	test_realloc();
	test_given_back();
	ok(in_child(limited_runs_out), "under RLIMIT_AS malloc ends with ENOMEM, and what was had is whole");
	ok(in_child(limited_has_what_is_free), "and gives what was had in short blocks as a long one");
	ok(in_child(cancelled_allocates), "a thread that was told to end does not end in malloc");
	ok(in_child(few_descriptors_are_left_alone), "of few descriptors the last is used");
	ok(in_child(no_files_are_written), "under RLIMIT_FSIZE blocks are taken, and not published");
	ok(bad_free_aborts(), "to free a block twice ends the process, as with glibc");
	ok(blocks() == 0, "at the end no block is left");
	return tap_end();
}
