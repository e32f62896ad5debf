/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Forks of a program whose threads allocate all the while: the child can allocate
 * and free, has a copy of what the parent had, and publishes its own numbers.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "malloc_test.h"

#define THREADS	4
#define FORKS	60

static _Atomic bool stop;
static _Atomic unsigned int wrong;
static char *kept;
static pid_t parent;

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
		memory[i] = malloc(sizes[i]);
		fill(memory[i], sizes[i], (unsigned int)i);
	}
	for (i = 0; i < 8; i++)
		free(memory[i]);
	return NULL;
}

static void *exit_with_block(void *context)
{
	char *memory = malloc(2 * MIB);

	fill(memory, 2 * MIB, 6);
	return memory;
}

static bool child_allocates(void)
{
	struct told told;
	pthread_t thread;
	void *memory;

	if (!is_filled(kept, 4 * MIB, 5))
		return false;
	fill(kept, 4 * MIB, 50);
	if (pthread_create(&thread, NULL, exit_with_block, NULL) ||
	    pthread_join(thread, &memory) || !is_filled(memory, 2 * MIB, 6))
		return false;
	told = told_now();
	if (told.pid != getpid() || told.pid == parent || told.blocks_total != 1)
		return false;
	free(memory);
	free(kept);
	malloc_trim(0);
	return true;
}


static bool grandchild_allocates(void)
{
	kept = malloc(4 * MIB);
	fill(kept, 4 * MIB, 5);
	return in_child(child_allocates);
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned int i, failed = 0;
	void *memory;

	parent = getpid();
	kept = malloc(4 * MIB);
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
	ok(told_now().pid == parent && !told_now().blocks, "at the end no block is left");
	return tap_end();
}
