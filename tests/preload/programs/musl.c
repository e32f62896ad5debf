/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program with another C library than glibc, as those of Alpine: it allocates in every
 * way, looks up what is there and what is not, and has a thread and a child.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES	(4UL << 20)

static int use(void *memory)
{
	if (!memory)
		return 0;
	memset(memory, 1, BYTES);
	free(memory);
	return 1;
}

static int allocates(void)
{
	void *memory = malloc(100), *aligned = NULL;

	return memory && use(realloc(memory, BYTES)) && use(malloc(BYTES)) &&
	       use(calloc(2, BYTES)) && use(aligned_alloc(64, BYTES)) && use(memalign(64, BYTES)) &&
	       !posix_memalign(&aligned, 64, BYTES) && malloc_usable_size(aligned) >= BYTES &&
	       use(aligned);
}

static void *in_thread(void *unused)
{
	return allocates() ? in_thread : NULL;
}

static int child_allocates(void)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(!allocates());
	return waitpid(child, &status, 0) == child && !status;
}

int main(void)
{
	void *found = NULL;
	pthread_t thread;

	if (!allocates() || pthread_create(&thread, NULL, in_thread, NULL) ||
	    pthread_join(thread, &found) || !found || !child_allocates())
		return 1;
	if (dlsym(RTLD_DEFAULT, "cuMemHostAlloc") || !dlsym(RTLD_DEFAULT, "printf") ||
	    !dlsym(dlopen(NULL, RTLD_NOW), "main"))
		return 2;
	puts("musl");
	return 0;
}
