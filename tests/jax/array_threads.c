// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Arrays made by some threads, whose views others end, as XLA's do, while memory is
 * trimmed and counted, and while the process forks; built with a sanitizer. Prints TAP.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xla/actmem_xla.h"
#include "xla/dlpack.h"

#define MAKERS		3
#define ENDERS		3
#define ROUNDS		3000
#define VIEWS_MAX	3
#define BYTES_MOST	100000
#define WAITING		64
/* A child of AddressSanitizer's may wait for its allocator's locks for ever. */
#ifdef __SANITIZE_ADDRESS__
#define FORKS		0
#else
#define FORKS		200
#endif
#define HUNG		60	/* seconds */

static atomic_long wrong;
static atomic_int making = MAKERS;
static struct dlpack_managed *waiting[WAITING];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define check(good)	check_at(good, #good, __LINE__)

static void check_at(int good, const char *what, int line)
{
	if (good)
		return;
	atomic_fetch_add(&wrong, 1);
	fprintf(stderr, "# line %d: %s\n", line, what);
}

/* Changes place with a view that waits, if any does. */
static struct dlpack_managed *exchange(struct dlpack_managed *view, unsigned int place)
{
	struct dlpack_managed *other;

	pthread_mutex_lock(&lock);
	other = waiting[place % WAITING];
	waiting[place % WAITING] = view;
	pthread_mutex_unlock(&lock);
	return other;
}

/* Whoever wrote it last, it is the same byte all over. */
static void end(struct dlpack_managed *view)
{
	const unsigned char *data;
	int64_t bytes;

	if (!view)
		return;
	data = view->tensor.data;
	bytes = view->tensor.shape[0];
	check(bytes == 1 || !memcmp(data, data + 1, (size_t)bytes - 1));
	if (data[0] % 2)
		view->deleter(view);
	else
		actmem_xla_tensor_drop(view);
}

static void *make(void *argument)
{
	unsigned int seed = *(unsigned int *)argument, round, views;
	struct actmem_xla_tensor_options options;
	struct actmem_xla_array *array;
	void *address, *view;
	char words[1024];
	int64_t bytes;

	ACTMEM_INIT(&options);
	options.rank = 1;
	options.device_type = 1;
	options.bits = 8;
	for (round = 0; round < ROUNDS; round++) {
		bytes = 1 + rand_r(&seed) % BYTES_MOST;
		if (actmem_xla_array_new((uint64_t)bytes, 0, 0, &array, &address, words,
					 sizeof(words))) {
			fprintf(stderr, "# %s\n", words);
			check(0);
			break;
		}
		memset(address, rand_r(&seed), (size_t)bytes);
		options.address = address;
		options.shape = &bytes;
		for (views = (unsigned int)rand_r(&seed) % VIEWS_MAX; views; views--) {
			check(!actmem_xla_tensor_new(array, &options, &view));
			end(exchange(view, (unsigned int)rand_r(&seed)));
		}
		actmem_xla_array_drop(array);
	}
	atomic_fetch_sub(&making, 1);
	return NULL;
}

static void *take(void *argument)
{
	unsigned int seed = *(unsigned int *)argument, round;
	struct actmem_xla_array_stats stats;

	for (round = 0; atomic_load(&making); round++) {
		end(exchange(NULL, (unsigned int)rand_r(&seed)));
		if (round % 64 == 0)
			check(!actmem_xla_trim());
		ACTMEM_INIT(&stats);
		check(!actmem_xla_array_stats(&stats) && stats.bytes <= stats.bytes_peak);
	}
	return NULL;
}

static atomic_int forking = 1;

/* Memory is made and ended all the time. */
static void *churn(void *argument)
{
	struct actmem_xla_array *array;
	char words[1024];
	void *address;

	while (atomic_load(&forking)) {
		if (!actmem_xla_array_new(1, 0, 0, &array, &address, words, sizeof(words)))
			actmem_xla_array_drop(array);
		else
			check_at(0, words, __LINE__);
		if (actmem_xla_trim())
			check_at(0, actmem_error(), __LINE__);
	}
	return argument;
}

static void be_a_child(void)
{
	struct actmem_xla_array_stats stats;
	struct actmem_xla_array *array;
	char words[1024];
	void *address;
	int ret;

	alarm(HUNG);
	ACTMEM_INIT(&stats);
	ret = actmem_xla_array_new(1, 0, 0, &array, &address, words, sizeof(words));
	_exit(ret != -EOWNERDEAD || !strstr(words, "fork") ||
	      actmem_xla_array_stats(&stats) != -EOWNERDEAD ||
	      actmem_xla_trim() != -EOWNERDEAD || !actmem_xla_attached());
}

/* Children that had what they are told; the first one that hangs ends it. */
static int fork_often(void)
{
	pthread_t threads[2];
	int i, status = 0;
	pid_t child;

	for (i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, churn, NULL))
			exit(1);
	while (!actmem_xla_attached())
		usleep(1000);
	for (i = 0; i < FORKS && !status; i++) {
		child = fork();
		if (!child)
			be_a_child();
		if (child < 0 || waitpid(child, &status, 0) != child)
			status = -1;
	}
	atomic_store(&forking, 0);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	if (status)
		printf("# a child ended with %#x\n", (unsigned int)status);
	return !status;
}

static int result(int number, int good, const char *what)
{
	printf("%s %d - %s\n", good ? "ok" : "not ok", number, what);
	return !good;
}

int main(void)
{
	unsigned int numbers[MAKERS + ENDERS], i;
	pthread_t threads[MAKERS + ENDERS];
	struct actmem_xla_array_stats stats;
	struct actmem_counters memory;
	int failed = 0, trimmed, forked = fork_often();
	uint64_t churned;

	ACTMEM_INIT(&stats);
	actmem_xla_array_stats(&stats);
	churned = stats.blocks_total;
	for (i = 0; i < MAKERS + ENDERS; i++) {
		numbers[i] = i;
		if (pthread_create(&threads[i], NULL, i < MAKERS ? make : take, &numbers[i]))
			return 1;
	}
	for (i = 0; i < MAKERS + ENDERS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < WAITING; i++)
		end(exchange(NULL, i));
	trimmed = actmem_xla_trim();
	ACTMEM_INIT(&stats);
	actmem_xla_array_stats(&stats);
	ACTMEM_INIT(&memory);
	actmem_get_counters(actmem_xla_attached(), &memory);

	printf("1..5\n");
	failed |= result(1, !wrong, "what was written stayed while anybody had it");
	failed |= result(2, !stats.blocks && !stats.bytes && !stats.views, "nothing is left");
	failed |= result(3, stats.blocks_total == churned + MAKERS * ROUNDS && stats.views_total &&
			 !stats.copied_bytes_total, "every array was counted");
	failed |= result(4, !trimmed && !memory.regions && !memory.blocks && !memory.heaps,
			 "its memory went back");
	failed |= result(5, forked, "children are told that it is not theirs, and none hangs");
	return failed;
}
