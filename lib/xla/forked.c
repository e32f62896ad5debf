/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Forked children; see forked.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "xla/forked.h"

#define WATCHED_MAX	7

static bool (*watched[WATCHED_MAX])(void);
static unsigned int watched_count;
static bool forked;
static int fork_error;

void forked_watch(bool (*is_free)(void))
{
	if (watched_count < WATCHED_MAX)
		watched[watched_count++] = is_free;
	else
		fork_error = -ENOMEM;
}

static void after_fork_in_child(void)
{
	unsigned int i;

	for (i = 0; i < watched_count && !forked; i++)
		forked = !watched[i]();
}

static void __attribute__((constructor)) watch_forks(void)
{
	int error = pthread_atfork(NULL, NULL, after_fork_in_child);

	if (error)
		fork_error = -error;
}

bool is_forked(void)
{
	return forked;
}

int forked_check(char *words, size_t words_size)
{
	if (forked) {
		snprintf(words, words_size,
			 "this process was forked from one that uses actmem.jax, and did not inherit the memory of its parent: start a new process instead of fork() (multiprocessing's spawn)");
		return -EOWNERDEAD;
	}
	if (fork_error)
		snprintf(words, words_size, "no memory to register handlers of fork()");
	return fork_error;
}
