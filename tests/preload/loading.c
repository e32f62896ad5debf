/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A library that asks for memory in its constructor, while another thread does: neither
 * waits for what the other one has, the loader's lock or one of ours.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory_test.h"

#define END_SECONDS	60

void in_constructor(void) __attribute__((visibility("default")));

static atomic_int thread_id;
static atomic_bool is_to_ask, has_asked;
static bool constructor_is_first;
static bool constructor_had, thread_had;

static bool takes_a_block(void)
{
	void *memory;

	CHECK(!api.cuMemHostAlloc(&memory, 4 * MIB, 0) && is_in_region(memory));
	fill(memory, 4 * MIB, 1);
	return is_filled(memory, 4 * MIB, 1) && !api.cuMemFreeHost(memory);
}

static char state_of(int thread)
{
	char path[64], state = '?';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "re");
	if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	if (file)
		fclose(file);
	return state;
}

static void *ask(void *unused)
{
	bool has_context = !api.cuCtxSetCurrent(primary);

	atomic_store(&thread_id, (int)syscall(SYS_gettid));
	while (!atomic_load(&is_to_ask))
		;
	thread_had = has_context && takes_a_block();
	atomic_store(&has_asked, true);
	return NULL;
}

/* Until the thread waits for something, or has what it wants. */
static void have_thread_ask(void)
{
	atomic_store(&is_to_ask, true);
	while (!atomic_load(&has_asked) && state_of(atomic_load(&thread_id)) != 'S')
		usleep(1000);
}

void in_constructor(void)
{
	if (!constructor_is_first)
		have_thread_ask();
	constructor_had = takes_a_block();
	if (constructor_is_first)
		have_thread_ask();
}

static bool load(void)
{
	pthread_t thread;

	alarm(END_SECONDS);
	CHECK(!pthread_create(&thread, NULL, ask, NULL));
	while (!atomic_load(&thread_id))
		usleep(1000);
	CHECK(dlopen("constructor.so", RTLD_NOW));
	CHECK(!pthread_join(thread, NULL));
	CHECK(constructor_had && thread_had);
	return true;
}

static bool thread_first(void)
{
	return load();
}

static bool constructor_first(void)
{
	constructor_is_first = true;
	return load();
}

/* What registers ranges is there then, and what hands out blocks is not. */
static bool after_a_range(void)
{
	char *memory = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	CHECK(memory != MAP_FAILED && !mprotect(memory, 4096, PROT_READ) &&
	      !mprotect(memory + 16 * MIB - 4096, 4096, PROT_READ));
	CHECK(!api.cuMemHostRegister_v2(memory + 4096, 16 * MIB - 8192, 0));
	CHECK(is_in_region(memory + 8 * MIB));
	return load();
}

static bool after_a_block(void)
{
	return takes_a_block() && load();
}

int main(void)
{
	skip_without_cuda();
	run_quiet("a thread asks, and then the constructor", thread_first, NULL);
	run_quiet("the constructor asks, and then a thread", constructor_first, NULL);
	run_quiet("the same after a range was registered", after_a_range, NULL);
	run_quiet("and after a block was taken", after_a_block, NULL);
	return tap_end();
}
