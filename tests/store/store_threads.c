/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * One store and many threads: each puts and takes blocks of its own, others take
 * what it has put, and the budget holds few of them.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "random.h"
#include "store_test.h"

#define THREADS	4
#define ROUNDS	5
#define BLOCKS	12
#define BUDGET	(4 * MIB)
/* So that the blocks of one thread alone are more than the budget. */
#define BYTES_MIN	(360 * KIB)
/* It takes a while to verify. */
#define CHECKED	(32 * MIB)
#define CHECKS	4

struct worker {
	pthread_t thread;
	struct actmem_store *store;
	uint64_t number, seed;
	int error;
};

static pthread_barrier_t start;
static atomic_bool stop;

static uint64_t bytes_of(uint64_t name)
{
	return BYTES_MIN + name * 7919 % (64 * KIB);
}

/* Its own blocks of a round, in an order that changes; some are kept, some dropped. */
static int run_round(struct worker *worker, uint64_t round)
{
	uint64_t i, name, first = random_below(&worker->seed, BLOCKS);
	const void *memory;
	int error = 0;

	for (i = 0; !error && i < BLOCKS; i++) {
		name = worker->number * BLOCKS + i;
		error = put_block(worker->store, name, bytes_of(name), name + round);
	}
	for (i = 0; !error && i < BLOCKS; i++) {
		name = worker->number * BLOCKS + (first + i) % BLOCKS;
		switch (random_below(&worker->seed, 8)) {
		case 0:
			error = actmem_store_drop(worker->store, key_of(name));
			continue;
		case 1:
			error = actmem_store_prefetch(worker->store, key_of(name));
			break;
		case 2:
			error = hold_block(worker->store, name, &memory, NULL);
			if (!error && !is_block(memory, bytes_of(name), name + round))
				error = -EILSEQ;
			if (!error)
				error = actmem_store_put_back(worker->store, key_of(name));
			break;
		default:
			break;
		}
		if (!error)
			error = take_block(worker->store, name, bytes_of(name), name + round);
	}
	return error;
}

static void *work(void *data)
{
	struct worker *worker = data;
	uint64_t round;

	pthread_barrier_wait(&start);
	for (round = 0; !worker->error && round < ROUNDS; round++)
		worker->error = run_round(worker, round);
	if (worker->error)
		fprintf(stderr, "# thread %llu: %d, %s\n", (unsigned long long)worker->number,
			worker->error, actmem_error());
	return NULL;
}

/* Each has the half of all memory, and wants more before it gives that back. */
static void *want_more(void *data)
{
	struct worker *worker = data;
	uint64_t own = worker->number, more = 100 + worker->number;
	void *memory;

	if (reserve_block(worker->store, own, BUDGET / 2, &memory))
		tap_bail("actmem_store_reserve");
	pthread_barrier_wait(&start);
	worker->error = reserve_block(worker->store, more, BUDGET / 2, &memory);
	if (actmem_store_drop(worker->store, key_of(own)) ||
	    (!worker->error && actmem_store_drop(worker->store, key_of(more))))
		tap_bail("actmem_store_drop");
	return NULL;
}

static void test_deadlock(struct actmem_store *store)
{
	struct worker workers[2] = { 0 };
	unsigned int i, told = 0;
	void *memory;

	/* Waits until nothing is left in memory between which the halves could not lie. */
	if (reserve_block(store, 99, BUDGET, &memory) ||
	    actmem_store_drop(store, key_of(99)))
		tap_bail("all memory cannot be had");
	pthread_barrier_init(&start, NULL, 2);
	for (i = 0; i < 2; i++) {
		workers[i].store = store;
		workers[i].number = i;
		workers[i].thread = start_thread(want_more, &workers[i]);
	}
	for (i = 0; i < 2; i++) {
		pthread_join(workers[i].thread, NULL);
		told += workers[i].error == -EDEADLK;
		ok(!workers[i].error || workers[i].error == -EDEADLK, "thread %u goes on", i);
	}
	ok(told == 1, "of two that wait for each other one is told");
}

static void run_threads(struct actmem_store *store)
{
	struct worker workers[THREADS] = { 0 };
	unsigned int i;

	pthread_barrier_init(&start, NULL, THREADS);
	for (i = 0; i < THREADS; i++) {
		workers[i].store = store;
		workers[i].number = i;
		workers[i].seed = i;
		workers[i].thread = start_thread(work, &workers[i]);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		ok(!workers[i].error, "thread %u had all its blocks back as they were", i);
	}
	ok(stats_of(store).puts_total == THREADS * ROUNDS * BLOCKS, "all puts were counted");
	ok(stats_of(store).spilled_bytes_total > 0, "some went through files");
}

/* Where the disk is full, memory is made and given back by all of them at once. */
static void test_beyond_budget(struct actmem *am)
{
	const char *path = spill_path();
	struct actmem_store_options options = store_options(BUDGET, &path, 1);
	struct actmem_store *store;
	uint64_t i;

	options.flags |= ACTMEM_STORE_ALLOW_MEMORY;
	options.spill_limit_bytes = MIB;
	store = store_or_bail(am, &options);
	run_threads(store);
	ok(stats_of(store).memory_bytes_peak > BUDGET, "memory beyond the budget was used");
	/* Memory of a block that was taken while it was being spilled goes when that has ended. */
	for (i = 0; i < 10000 && stats_of(store).memory_bytes > BUDGET; i++)
		usleep(1000);
	ok(stats_of(store).memory_bytes <= BUDGET, "and is given back");
	destroy_empty(store);
}

static void *take_whole(void *data)
{
	struct worker *worker = data;

	worker->error = take_block(worker->store, 0, CHECKED, 0);
	return NULL;
}

/* A thread asks for memory while another thread verifies the block that has all of it. */
static void test_verifying(struct actmem *am)
{
	struct actmem_store_options options = store_options(CHECKED, NULL, 0);
	struct worker taker = { 0 };
	unsigned int i, wrong = 0;
	void *memory;

	options.flags = ACTMEM_STORE_HANDED_ON | ACTMEM_STORE_CHECKSUM;
	taker.store = store_or_bail(am, &options);
	for (i = 0; i < CHECKS; i++) {
		if (put_block(taker.store, 0, CHECKED, 0) ||
		    pthread_create(&taker.thread, NULL, take_whole, &taker))
			tap_bail("a block and a thread");
		while (stats_of(taker.store).checksums_total == i)
			sched_yield();
		wrong += !!reserve_block(taker.store, 1, CHECKED, &memory);
		pthread_join(taker.thread, NULL);
		wrong += !!taker.error;
		actmem_store_drop(taker.store, key_of(1));
	}
	ok(!wrong, "memory is waited for that another thread verifies, and is to give back");
	destroy_empty(taker.store);
}

static void *drop_until_put(void *data)
{
	struct worker *worker = data;
	int error;

	do {
		error = actmem_store_drop(worker->store, key_of(0));
	} while (error && !atomic_load(&stop));
	worker->error = error;
	return NULL;
}

/* The memory of a block that is being copied in is nobody else's. */
static void test_drop_while_put(struct actmem *am)
{
	struct actmem_store_options options = store_options(CHECKED, NULL, 0);
	char *data = calloc(1, CHECKED);
	struct worker dropper = { 0 };
	unsigned int i, wrong = 0;

	dropper.store = store_or_bail(am, &options);
	for (i = 0; i < CHECKS; i++) {
		atomic_store(&stop, false);
		dropper.thread = start_thread(drop_until_put, &dropper);
		wrong += !!actmem_store_put(dropper.store, key_of(0), data, CHECKED);
		atomic_store(&stop, true);
		pthread_join(dropper.thread, NULL);
		if (dropper.error)
			wrong += !!actmem_store_drop(dropper.store, key_of(0));
	}
	ok(!wrong, "what is being put is not dropped");
	free(data);
	destroy_empty(dropper.store);
}

static void *reserve_part(void *data)
{
	struct worker *worker = data;
	void *memory;

	worker->error = reserve_block(worker->store, worker->number, BUDGET / 4, &memory);
	return NULL;
}

/* One block that ends has room for two that wait: the first has the second look, too. */
static void test_room_for_two(struct actmem *am)
{
	struct actmem_store_options options = store_options(BUDGET, NULL, 0);
	struct timespec moment = { 0, 20000000 };
	struct worker waiters[2] = { 0 };
	struct actmem_store *store;
	const void *memory;
	unsigned int i;

	options.flags = ACTMEM_STORE_HANDED_ON;
	store = store_or_bail(am, &options);
	if (put_block(store, 0, BUDGET, 0) || hold_block(store, 0, &memory, NULL))
		tap_bail("a block that has all memory");
	for (i = 0; i < 2; i++) {
		waiters[i].store = store;
		waiters[i].number = i + 1;
		waiters[i].thread = start_thread(reserve_part, &waiters[i]);
	}
	nanosleep(&moment, NULL);
	returns(actmem_store_release(store, key_of(0)), 0);
	alarm(60);
	for (i = 0; i < 2; i++) {
		pthread_join(waiters[i].thread, NULL);
		ok(!waiters[i].error, "thread %u has its part of the room", i);
	}
	alarm(0);
	for (i = 0; i < 2; i++)
		returns(actmem_store_drop(store, key_of(i + 1)), 0);
	destroy_empty(store);
}

static void *reserve_whole(void *data)
{
	struct worker *worker = data;
	void *memory;

	worker->error = reserve_block(worker->store, worker->number, BUDGET, &memory);
	return NULL;
}

/* A thread is not taken for one that has ended, whose pthread_t it may well have. */
static void test_thread_in_the_place_of_another(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, BUDGET);
	struct worker first = { .store = store, .number = 1 };
	struct worker second = { .store = store, .number = 2 };
	struct timespec moment = { 0, 20000000 };

	if (pthread_create(&first.thread, NULL, reserve_whole, &first) ||
	    pthread_join(first.thread, NULL) || first.error ||
	    pthread_create(&second.thread, NULL, reserve_whole, &second))
		tap_bail("two threads");
	nanosleep(&moment, NULL);
	returns(actmem_store_commit(store, key_of(1)), 0);
	pthread_join(second.thread, NULL);
	ok(!second.error, "it waits for memory that the other had reserved");
	returns(actmem_store_drop(store, key_of(1)), 0);
	returns(actmem_store_drop(store, key_of(2)), 0);
	destroy_empty(store);
}

int main(void)
{
	struct actmem *am = open_or_bail();
	struct usage before = usage_now();
	struct actmem_store *store = spilling_store(am, BUDGET);

	run_threads(store);
	test_deadlock(store);
	destroy_empty(store);
	test_beyond_budget(am);
	test_verifying(am);
	test_drop_while_put(am);
	test_room_for_two(am);
	test_thread_in_the_place_of_another(am);
	return end_open_tests(am, before);
}
