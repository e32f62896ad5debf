/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The threads that compute updates; see threads.h.
 *
 * No thread is bound to one CPU, because another thread of the program on that CPU could then delay
 * the whole update. A lock protects the list of pools. Each pool (the threads of a node) has two
 * locks, `turn` and `lock`. The call that uses the threads holds `turn`. A thread that takes both
 * locks takes `turn` first.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "update/threads.h"

struct pool {
	struct pool *next;
	int node;
	unsigned int threads;		/* protected by lock once the pool is abandoned */
	pthread_mutex_t turn;		/* held by the call that uses the threads */
	pthread_mutex_t lock;		/* protects the fields below */
	pthread_cond_t work_comes, work_ends;
	void (*work)(void *data);
	void *data;
	unsigned int wanted;		/* threads that have yet to begin the work */
	unsigned int working;
	bool is_abandoned;		/* true when the pool's threads must end */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool *pools;		/* never freed, because threads wait for work */
static int fork_error;

/*
 * A forked child has no threads of its parent, but these threads may have held any lock during
 * fork(). So the child resets the lock, and abandons the memory of the parent's pools.
 */
static void forget_pools(void)
{
	static const pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;

	memcpy(&lock, &free_lock, sizeof(lock));
	pools = NULL;
}

static void __attribute__((constructor)) watch_forks(void)
{
	fork_error = -pthread_atfork(NULL, NULL, forget_pools);
}

static void free_pool(struct pool *pool)
{
	pthread_cond_destroy(&pool->work_ends);
	pthread_cond_destroy(&pool->work_comes);
	pthread_mutex_destroy(&pool->lock);
	pthread_mutex_destroy(&pool->turn);
	free(pool);
}

static void *pool_thread(void *data)
{
	struct pool *pool = data;
	bool is_last;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		while (!pool->wanted && !pool->is_abandoned)
			pthread_cond_wait(&pool->work_comes, &pool->lock);
		if (pool->is_abandoned)
			break;
		pool->wanted--;
		pool->working++;
		pthread_mutex_unlock(&pool->lock);
		pool->work(pool->data);
		pthread_mutex_lock(&pool->lock);
		/* No work is left for threads that have not begun. */
		pool->wanted = 0;
		pool->working--;
		if (!pool->working)
			pthread_cond_signal(&pool->work_ends);
	}
	is_last = !--pool->threads;
	pthread_mutex_unlock(&pool->lock);
	if (is_last)
		free_pool(pool);
	return NULL;
}

static int find_cpus(int node, struct cpus *cpus, char *words, size_t words_size)
{
	int error = cpus_of_process(cpus);

	if (error) {
		snprintf(words, words_size,
			 "cannot get the CPUs of this process (sched_getaffinity: %s)",
			 strerror(-error));
		return error;
	}
	if (node == ALL_NODES)
		return 0;
	if (!cpus_keep_node(cpus, (unsigned int)node) ||
	    !CPU_COUNT_S(sizeof(*cpus), cpus_set(cpus))) {
		snprintf(words, words_size,
			 "node %d has no CPU that this process may use (sched_setaffinity, taskset, cpuset)",
			 node);
		return -ENODEV;
	}
	return 0;
}

/*
 * Starts @count threads on these CPUs, or fewer if the process cannot start more. Returns 0, or a
 * negative errno if the kernel does not permit a thread to run on these CPUs.
 */
static int start_threads(struct pool *pool, struct cpus *cpus, unsigned int count)
{
	pthread_t thread;
	int error = 0;

	while (!error && pool->threads < count &&
	       !thread_start(&thread, "actmem-update", pool_thread, pool)) {
		pool->threads++;
		error = -pthread_setaffinity_np(thread, sizeof(*cpus), cpus_set(cpus));
		pthread_detach(thread);
	}
	return error;
}

/*
 * Ends the threads of a pool that has at least one thread. The last thread frees the pool, perhaps
 * before this function returns.
 */
static void abandon(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->is_abandoned = true;
	pthread_cond_broadcast(&pool->work_comes);
	pthread_mutex_unlock(&pool->lock);
}

static int make_pool(int node, struct pool **made, char *words, size_t words_size)
{
	struct reader reader = READER(ACTMEM_NAMES_VARIABLES);
	uint64_t most = reader_value(&reader, KNOB_UPDATE_THREADS);
	struct pool *pool;
	struct cpus cpus;
	unsigned int cores;
	int error = find_cpus(node, &cpus, words, words_size);

	if (error)
		return error;
	if (*reader.error) {
		snprintf(words, words_size, "%s", reader.error);
		return -EINVAL;
	}
	pool = calloc(1, sizeof(*pool));
	if (!pool) {
		snprintf(words, words_size, "no memory for the threads of an update");
		return -ENOMEM;
	}
	pool->node = node;
	pthread_mutex_init(&pool->turn, NULL);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work_comes, NULL);
	pthread_cond_init(&pool->work_ends, NULL);
	cores = cpus_count_cores(&cpus);
	if (most && most < cores)
		cores = (unsigned int)most;
	error = start_threads(pool, &cpus, cores);
	if (error) {
		abandon(pool);
		snprintf(words, words_size,
			 "cannot run a thread on the CPUs of node %d (sched_setaffinity: %s)", node,
			 strerror(-error));
		return error;
	}
	*made = pool;
	return 0;
}

static int find_pool(int node, struct pool **found, char *words, size_t words_size)
{
	struct pool *pool;
	int error = fork_error;

	if (error) {
		snprintf(words, words_size, "no memory to register a handler of fork()");
		return error;
	}
	pthread_mutex_lock(&lock);
	for (pool = pools; pool && pool->node != node;)
		pool = pool->next;
	if (!pool) {
		error = make_pool(node, &pool, words, words_size);
		if (!error) {
			pool->next = pools;
			pools = pool;
		}
	}
	pthread_mutex_unlock(&lock);
	*found = pool;
	return error;
}

/* Makes the pool's threads call @work. Caller holds pool->turn, and the pool has threads. */
static void run_on(struct pool *pool, void (*work)(void *data), void *data, unsigned int useful)
{
	unsigned int i;

	pthread_mutex_lock(&pool->lock);
	pool->work = work;
	pool->data = data;
	pool->wanted = useful < pool->threads ? useful : pool->threads;
	for (i = pool->wanted; i; i--)
		pthread_cond_signal(&pool->work_comes);
	while (pool->wanted || pool->working)
		pthread_cond_wait(&pool->work_ends, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

int threads_run(int node, void (*work)(void *data), void *data, unsigned int useful,
		char *words, size_t words_size)
{
	struct pool *pool;
	int error;

	/*
	 * Disable cancellation: a cancelled thread would leave locks held, and other threads would
	 * still use @data.
	 */
	thread_hold_cancellation();
	error = find_pool(node, &pool, words, words_size);
	if (!error) {
		pthread_mutex_lock(&pool->turn);
		if (pool->threads)
			run_on(pool, work, data, useful);
		else
			work(data);
		pthread_mutex_unlock(&pool->turn);
	}
	thread_let_cancellation();
	return error;
}
