/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Forks of a program whose threads allocate all the while, under a lock of a library
 * that has it held over forks; and of a signal's handler: the child can allocate and
 * free, has a copy of what the parent had, and publishes its own numbers.
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "forks_library.h"
#include "malloc_test.h"

#define THREADS	4
#define FORKS	60
#define SIGNALS	100

static _Atomic bool stop;
static _Atomic unsigned int wrong;
static char *kept;
static pid_t parent;

static volatile sig_atomic_t signals, children_failed, is_child;

static void *allocate(void *context)
{
	unsigned int seed = (unsigned int)(uintptr_t)context;
	char *memory[8] = { 0 };
	size_t sizes[8] = { 0 }, i;

	while (!stop) {
		i = (size_t)rand_r(&seed) % 8;
		if (memory[i] && !is_filled(memory[i], sizes[i], (unsigned int)i))
			wrong++;
		free(memory[i]);
		sizes[i] = MIB / 2 + (size_t)rand_r(&seed) % (3 * MIB);
		library_lock();
		memory[i] = memalign(64, sizes[i]);
		library_unlock();
		fill(memory[i], sizes[i], (unsigned int)i);
	}
	for (i = 0; i < 8; i++)
		free(memory[i]);
	return NULL;
}

static void *exit_with_block(void *context)
{
	char *memory = memalign(64, 2 * MIB);

	fill(memory, 2 * MIB, 6);
	return memory;
}

static bool child_allocates(void)
{
	struct malloc_counters counters;
	pthread_t thread;
	void *memory;

	if (!is_filled(kept, 4 * MIB, 5))
		return false;
	fill(kept, 4 * MIB, 50);
	if (pthread_create(&thread, NULL, exit_with_block, NULL) ||
	    pthread_join(thread, &memory) || !is_filled(memory, 2 * MIB, 6))
		return false;
	counters = counters_now();
	if (counters.start.pid != getpid() || counters.start.pid == parent || counters.blocks_total != 1)
		return false;
	free(memory);
	free(kept);
	malloc_trim(0);
	return true;
}

/* The child goes on where the signal came. */
static void fork_in_handler(int number)
{
	pid_t child = fork();
	int status;

	is_child = !child;
	if (is_child)
		return;
	if (waitpid(child, &status, 0) != child || status)
		children_failed++;
	signals++;
}

static void end_child(void)
{
	struct malloc_counters counters;

	if (!is_child)
		return;
	free(memalign(64, MIB));
	counters = counters_now();
	_exit(counters.start.pid != getpid() || !counters.blocks_total || counters.blocks);
}

static void test_signals(void)
{
	struct itimerval each = { { 0, 1000 }, { 0, 1000 } }, none = { 0 };

	signal(SIGALRM, fork_in_handler);
	setitimer(ITIMER_REAL, &each, NULL);
	while (signals < SIGNALS) {
		free(memalign(64, MIB));
		end_child();
	}
	setitimer(ITIMER_REAL, &none, NULL);
	end_child();
	ok(!children_failed, "%d of %d children of a signal's handler failed",
	   (int)children_failed, (int)signals);
}

static bool grandchild_allocates(void)
{
	kept = memalign(64, 4 * MIB);
	fill(kept, 4 * MIB, 5);
	return in_child(child_allocates);
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned int i, failed = 0;
	void *memory;

	parent = getpid();
	test_signals();
	kept = memalign(64, 4 * MIB);
	fill(kept, 4 * MIB, 5);
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, allocate, (void *)(uintptr_t)(i + 1)))
			tap_bail("pthread_create");
	for (i = 0; i < FORKS; i++)
		failed += !in_child(child_allocates);
	ok(!failed, "%u of %u children of a program with %d threads failed", failed, FORKS, THREADS);
	ok(in_child(grandchild_allocates), "a child's child allocates, too");
	stop = true;
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ok(!wrong, "no thread found another's bytes in its blocks (%u times)", wrong);
	ok(is_filled(kept, 4 * MIB, 5), "the parent's block is as it was");
	free(kept);
	if (pthread_create(&threads[0], NULL, exit_with_block, NULL) ||
	    pthread_join(threads[0], &memory))
		tap_bail("pthread_create");
	ok(is_filled(memory, 2 * MIB, 6), "a block outlives the thread that took it");
	free(memory);
	ok(counters_now().start.pid == parent && !counters_now().blocks, "at the end no block is left");
	return tap_end();
}
