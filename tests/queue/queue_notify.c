/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the store is told of completions by, in a thread of the queue, by each engine: it
 * goes on from there, cancels, hears of what ends without a transfer; others that wait
 * meanwhile; the queue's end while it is told.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "queue/queue.h"
#include "queue_test.h"

#define BLOCK		(64 * KIB)
#define SLOTS		8
#define CHAIN		200
#define TAKERS		2

struct listener {
	struct actmem_queue *queue;
	struct actmem_region *region;
	struct actmem_file *file;
	pthread_t program;
	atomic_uint inside;		/* calls at a time */
	atomic_uint begun, ended, failed;
	unsigned int wanted;
	int results[SLOTS];		/* of the first to end */
	bool in_order;			/* alone, in another thread, without signals */
	pthread_t teller;
	unsigned int tellers;		/* threads in a row */
	bool has_returned;
	sem_t all, told, go;
};

static void start(struct listener *listener, struct actmem *am, enum actmem_engine engine,
		  unsigned int workers, struct actmem_region *region, unsigned int wanted,
		  void (*notify)(void *data))
{
	struct actmem_queue_options options = {
		.size = sizeof(options), .engine = engine, .block_bytes = BLOCK / 2, .depth = 4,
		.workers = workers,
	};

	*listener = (struct listener){ .region = region, .wanted = wanted, .in_order = true };
	listener->program = pthread_self();
	sem_init(&listener->all, 0, 0);
	sem_init(&listener->told, 0, 0);
	sem_init(&listener->go, 0, 0);
	returns(actmem_queue_create(am, &options, &listener->queue), 0);
	returns(queue_notify_by(listener->queue, notify, listener), 0);
	returns(actmem_queue_attach(listener->queue, region, 0), 0);
}

/* The queue waits for what it tells. */
static void stop(struct listener *listener)
{
	returns(actmem_queue_detach(listener->queue, listener->region), 0);
	destroy_idle(listener->queue);
	sem_destroy(&listener->all);
	sem_destroy(&listener->told);
	sem_destroy(&listener->go);
}

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore))
		if (errno != EINTR)
			tap_bail("sem_wait: %s", strerror(errno));
}

static void enter(struct listener *listener)
{
	sigset_t blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	/* But for those of a fault, which are the program's to handle. */
	if (atomic_fetch_add(&listener->inside, 1) || !sigismember(&blocked, SIGINT) ||
	    sigismember(&blocked, SIGSEGV) || sigismember(&blocked, SIGBUS) || pthread_equal(listener->program, pthread_self()))
		listener->in_order = false;
	if (!listener->tellers || !pthread_equal(listener->teller, pthread_self()))
		listener->tellers++;
	listener->teller = pthread_self();
}

static void leave(struct listener *listener)
{
	atomic_fetch_sub(&listener->inside, 1);
}

static int fill(struct listener *listener, uint64_t slot)
{
	struct actmem_request request = { .size = sizeof(request), .cookie = slot };

	return actmem_queue_fill(listener->queue, listener->file, slot * BLOCK, listener->region,
				 slot * BLOCK, BLOCK, &request);
}

/* Counts what there is to take; a slot that is free begins the next of the chain. */
static void take(struct listener *listener, struct actmem_queue *queue)
{
	struct actmem_completion completions[3];
	int count, i;

	while ((count = actmem_queue_wait(queue, completions, 3, 0)) > 0)
		for (i = 0; i < count; i++) {
			unsigned int number;

			if (completions[i].result)
				atomic_fetch_add(&listener->failed, 1);
			if (listener->file && atomic_fetch_add(&listener->begun, 1) < CHAIN &&
			    fill(listener, completions[i].cookie))
				atomic_fetch_add(&listener->failed, 1);
			number = atomic_fetch_add(&listener->ended, 1);
			if (number < SLOTS)
				listener->results[number] = completions[i].result;
			if (number + 1 == listener->wanted)
				sem_post(&listener->all);
		}
}

static void take_here(void *data)
{
	struct listener *listener = data;

	enter(listener);
	take(listener, listener->queue);
	leave(listener);
}

static void test_chain(struct actmem *am, enum actmem_engine engine, struct actmem_region *region)
{
	char *memory = memory_or_bail(region), *wanted = malloc(LENGTH);
	struct listener listener;
	unsigned int slot;
	struct set set;

	start(&listener, am, engine, 0, region, CHAIN, take_here);
	set = set_or_bail(listener.queue, 2, 0, LENGTH);
	pattern(wanted, LENGTH, 5);
	if (!set_transfer(&set, wanted, 0, LENGTH, true))
		tap_bail("cannot write the files: %s", strerror(errno));
	memset(memory, 0, LENGTH);
	listener.file = set.file;
	listener.begun = SLOTS;
	for (slot = 0; slot < SLOTS; slot++)
		if (fill(&listener, slot))
			tap_bail("actmem_queue_fill");
	wait_for(&listener.all);
	ok(!listener.failed && listener.ended == CHAIN, "a chain of %d fills, begun by each other",
	   CHAIN);
	ok(listener.in_order, "it is told by one thread of the queue at a time, without signals");
	ok(!memcmp(memory, wanted, SLOTS * BLOCK), "and every byte has come");
	set_close(&set);
	stop(&listener);
	free(wanted);
	returns(actmem_region_unmap(region), 0);
}

static void *take_too(void *data)
{
	struct listener *listener = data;
	struct actmem_completion completion;
	int count;

	while (listener->ended < CHAIN) {
		count = actmem_queue_wait(listener->queue, &completion, 1, 1000000);
		if (count != 1)
			continue;
		if (completion.result || (atomic_fetch_add(&listener->begun, 1) < CHAIN &&
					  fill(listener, completion.cookie)))
			atomic_fetch_add(&listener->failed, 1);
		if (atomic_fetch_add(&listener->ended, 1) + 1 == CHAIN)
			sem_post(&listener->all);
	}
	return NULL;
}

/* Each completion goes to one, whoever comes first. */
static void test_others(struct actmem *am, enum actmem_engine engine,
			struct actmem_region *region)
{
	struct listener listener;
	pthread_t takers[TAKERS];
	struct set set;
	unsigned int i;

	start(&listener, am, engine, 0, region, CHAIN, take_here);
	set = set_or_bail(listener.queue, 1, 0, LENGTH);
	listener.file = set.file;
	listener.begun = SLOTS;
	for (i = 0; i < TAKERS; i++)
		takers[i] = start_thread(take_too, &listener);
	for (i = 0; i < SLOTS; i++)
		if (fill(&listener, i))
			tap_bail("actmem_queue_fill");
	wait_for(&listener.all);
	for (i = 0; i < TAKERS; i++)
		pthread_join(takers[i], NULL);
	ok(!listener.failed && listener.ended == CHAIN && listener.in_order,
	   "threads that wait share %d completions with it", CHAIN);
	set_close(&set);
	stop(&listener);
}

/* A request also ends without a transfer, by a deadline. */
static void test_deadline(struct actmem *am, enum actmem_engine engine,
			  struct actmem_region *region)
{
	struct actmem_request request = { .size = sizeof(request), .deadline_ns = 1 };
	struct listener listener;
	struct set set;

	start(&listener, am, engine, 0, region, 2, take_here);
	set = set_or_bail(listener.queue, 1, 0, LENGTH);
	listener.ended = 1;
	returns(actmem_queue_fill(listener.queue, set.file, 0, region, 0, BLOCK, NULL), 0);
	wait_for(&listener.all);
	ok(listener.results[1] == 0, "it is told of a fill");
	ok(listener.tellers == 1 || engine == ACTMEM_ENGINE_WORKERS,
	   "where there is a ring, by the thread that has it");
	listener.ended = 1;
	returns(actmem_queue_fill(listener.queue, set.file, 0, region, 0, LENGTH, &request), 0);
	wait_for(&listener.all);
	ok(listener.results[1] == -ETIME, "and of a deadline");
	set_close(&set);
	stop(&listener);
}

static void take_when_let(void *data)
{
	struct listener *listener = data;

	enter(listener);
	sem_post(&listener->told);
	wait_for(&listener->go);
	take(listener, listener->queue);
	leave(listener);
}

/*
 * The only thread is in what it tells by, so that what is asked for meanwhile cannot have
 * begun: who cancels it ends it.
 */
static void test_cancel(struct actmem *am, enum actmem_engine engine, struct actmem_region *region)
{
	struct actmem_completion completion;
	struct actmem_request request = { .size = sizeof(request) };
	struct listener listener;
	struct set set;

	start(&listener, am, engine, 1, region, 2, take_when_let);
	set = set_or_bail(listener.queue, 1, 0, LENGTH);
	returns(actmem_queue_fill(listener.queue, set.file, 0, region, 0, BLOCK, NULL), 0);
	wait_for(&listener.told);
	returns(actmem_queue_fill(listener.queue, set.file, 0, region, BLOCK, BLOCK, &request), 0);
	returns(actmem_queue_wait(listener.queue, &completion, 1, ACTMEM_WAIT_FOREVER), 1);
	ok(!completion.result && completion.id != request.id, "its completion, taken by another");
	returns(actmem_queue_cancel(listener.queue, request.id), 0);
	returns(actmem_queue_cancel(listener.queue, request.id), -ENOENT);
	listener.ended = 1;
	sem_post(&listener.go);
	sem_post(&listener.go);
	wait_for(&listener.all);
	ok(listener.results[1] == -ECANCELED && listener.in_order,
	   "what is cancelled while it is told is told too");
	set_close(&set);
	stop(&listener);
}

static void return_late(void *data)
{
	struct timespec a_while = { 0, 30000000 };
	struct listener *listener = data;

	take(listener, listener->queue);
	nanosleep(&a_while, NULL);
	listener->has_returned = true;
}

static void test_destroy(struct actmem *am, enum actmem_engine engine,
			 struct actmem_region *region)
{
	struct listener listener;
	struct set set;

	start(&listener, am, engine, 0, region, 1, return_late);
	set = set_or_bail(listener.queue, 1, 0, LENGTH);
	returns(actmem_queue_spill(listener.queue, set.file, 0, region, 0, LENGTH, NULL), 0);
	wait_for(&listener.all);
	set_close(&set);
	stop(&listener);
	ok(listener.has_returned, "a queue ends when what it tells by is back");
}

static void test_engine(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_region *region = region_or_bail(am, "notify");

	printf("# %s\n", engine_names[engine]);
	test_chain(am, engine, region);
	test_others(am, engine, region);
	test_deadline(am, engine, region);
	test_cancel(am, engine, region);
	test_destroy(am, engine, region);
	returns(actmem_region_close(region), 0);
}

int main(void)
{
	return test_engines(test_engine);
}
