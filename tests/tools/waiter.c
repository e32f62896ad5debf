// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Waits as a job does: waiter WHAT FOLDER has a store with files in the folder. WHAT
 * says which system call does not return, as with a disk that answers no more: `read`,
 * `write`, `file` (fallocate) or `region` (mlock); or `register` or `unregister`, CUDA's
 * call that registers a region or lets go of it. `device`: the program itself waits for an
 * accelerator, and publishes that. With `memory` all return, and one thread waits for memory
 * that another one has.
 *
 * It prints "ready" before, and at the end of its input all goes on. When it has put and
 * taken all it prints "done" and waits for a signal.
 */
#include <dlfcn.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "actmem_runtime.h"
#include "actmem_store.h"
#include "control.h"

#define BLOCK_BYTES	(1ULL << 20)
#define BUDGET_BLOCKS	4
#define SEEN		__attribute__((visibility("default")))

static const char *stopped = "";
static _Atomic bool armed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static void stop_at(const char *what)
{
	if (strcmp(stopped, what))
		return;
	pthread_mutex_lock(&lock);
	while (armed)
		pthread_cond_wait(&released, &lock);
	pthread_mutex_unlock(&lock);
}

/* The library's calls of these come here. */
SEEN ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
	stop_at("read");
	return preadv(fd, parts, count, offset);
}

SEEN ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
	stop_at("write");
	return pwritev(fd, parts, count, offset);
}

SEEN int fallocate(int fd, int mode, off_t offset, off_t length)
{
	stop_at("file");
	return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

SEEN int nanosleep(const struct timespec *time, struct timespec *rest)
{
	stop_at("register");
	stop_at("unregister");
	return clock_nanosleep(CLOCK_MONOTONIC, 0, time, rest) ? -1 : 0;
}

SEEN int mlock2(const void *address, size_t length, unsigned int flags)
{
	stop_at("region");
	return (int)syscall(SYS_mlock2, address, length, flags);
}

static void check(int error)
{
	if (error)
		errx(1, "%s", actmem_error());
}

/* The stand-in for CUDA sleeps before it registers a region or lets go of it. */
static struct actmem_runtime *make_runtime(struct actmem *am)
{
	bool is_register = !strcmp(stopped, "register");
	struct actmem_runtime_options options;
	struct actmem_runtime *runtime;
	standin_slow_function *slow;
	void *library;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_CUDA;
	check(actmem_runtime_open(am, &options, &runtime));
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		errx(1, "%s", dlerror());
	*(void **)&slow = dlsym(library, "standin_slow");
	if (!slow)
		errx(1, "%s", dlerror());
	slow(is_register ? "cuMemHostRegister_v2" : "cuMemHostUnregister", 1);
	return runtime;
}

static struct actmem_store *make_store(struct actmem *am, const char *folder)
{
	struct actmem_queue_options queue;
	struct actmem_store_options options;
	struct actmem_store *store;

	ACTMEM_INIT(&options);
	ACTMEM_INIT(&queue);
	options.queue = &queue;
	queue.engine = ACTMEM_ENGINE_WORKERS;
	options.budget_bytes = BUDGET_BLOCKS * BLOCK_BYTES;
	options.flags = ACTMEM_STORE_HANDED_ON | ACTMEM_STORE_ALLOW_BUFFERED;
	if (strcmp(stopped, "memory")) {
		options.spill_paths = &folder;
		options.spill_path_count = 1;
	}
	if (strstr(stopped, "register"))
		options.runtime = make_runtime(am);
	check(actmem_store_create(am, &options, &store));
	return store;
}

/* One thread holds all of the budget until the end of input, and this one wants more. */
static void wait_for_memory(struct actmem_store *store)
{
	struct actmem_key key = { 0 };
	const void *held;
	void *memory;

	for (key.name = 0; key.name < BUDGET_BLOCKS; key.name++) {
		check(actmem_store_reserve(store, key, BLOCK_BYTES, &memory, ACTMEM_WAIT_FOREVER));
		check(actmem_store_commit(store, key));
		check(actmem_store_hold(store, key, &held, NULL, ACTMEM_WAIT_FOREVER));
	}
	check(actmem_store_reserve(store, key, BLOCK_BYTES, &memory, ACTMEM_WAIT_FOREVER));
	check(actmem_store_drop(store, key));
	while (--key.name)
		check(actmem_store_release(store, key));
}

/* More than the budget there, and back. */
static void put_and_take(struct actmem_store *store)
{
	char *data = calloc(1, BLOCK_BYTES);
	struct actmem_key key = { 0 };

	if (!data)
		err(1, "calloc");
	for (key.name = 0; key.name < 2 * BUDGET_BLOCKS; key.name++)
		check(actmem_store_put(store, key, data, BLOCK_BYTES));
	while (key.name--)
		check(actmem_store_take(store, key, data, BLOCK_BYTES));
	free(data);
}

static void wait_for_device(struct actmem *am)
{
	struct actmem_device_wait *wait = actmem_device_wait_begin(am, BLOCK_BYTES, "GPU 7");

	stop_at("device");
	actmem_device_wait_end(am, wait);
}

static void *end_of_input(void *store)
{
	struct actmem_key first = { 0 };
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	if (!strcmp(stopped, "memory"))
		check(actmem_store_release(store, first));
	pthread_mutex_lock(&lock);
	armed = false;
	pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void tell(const char *what)
{
	puts(what);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct actmem_store *store;
	struct actmem *am;
	pthread_t thread;

	if (argc != 3)
		errx(2, "usage: waiter WHAT FOLDER");
	stopped = argv[1];
	check(actmem_open(&am, NULL));
	store = make_store(am, argv[2]);
	armed = true;
	if (pthread_create(&thread, NULL, end_of_input, store))
		errx(1, "cannot start a thread");
	tell("ready");
	if (!strcmp(stopped, "memory"))
		wait_for_memory(store);
	else
		put_and_take(store);
	wait_for_device(am);
	if (!strcmp(stopped, "unregister"))
		check(actmem_store_destroy(store));
	pthread_join(thread, NULL);
	tell("done");
	pause();
	return 0;
}
