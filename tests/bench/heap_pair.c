// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What actmem_heap_alloc() and actmem_heap_free() of one block cost, against malloc() and
 * free() of whatever allocator this process was started with (LD_PRELOAD): the
 * blocks of a training step, taken and given in its order, by one thread and by
 * two at once. Nobody touches the memory, so the heap's regions are lazy ones.
 *
 *   heap_pair [--smoke] MODELS.csv       PEER_NAME says what malloc() is
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "actmem.h"
#include "bench.h"
#include "trace.h"

#define THREADS_MOST	2
/* The second is what is left of the first where 64 devices share it. */
#define TOKENS		4096
#define TOKENS_SHARED	64
#define ROUNDS		15
#define PAIRS		20000
#define PEER_SECONDS	0.01
/* A heap has settled after so many rounds in a row without another region. */
#define SETTLED_ROUNDS	3
/* Rounds after which it is measured all the same. */
#define SETTLING_MOST	50

struct worker {
	pthread_t thread;
	void **blocks;
	double seconds;
};

/* What all threads do in this round; between two barriers only they run. */
static struct worker workers[THREADS_MOST];
static pthread_barrier_t barrier;
static struct actmem_heap *heap;
static struct trace trace;
static size_t steps, our_steps, peer_steps;
static bool peers_turn, ended, failed;

static void step_ours(void **blocks)
{
	size_t i;

	for (i = 0; i < trace.events; i++) {
		const struct event *event = &trace.event[i];
		void **block = &blocks[event->block];

		if (event->gives ? actmem_heap_free(heap, *block) :
				   actmem_heap_alloc(heap, trace.bytes[event->block], 0, block))
			failed = true;
	}
}

static void step_peer(void **blocks)
{
	size_t i;

	for (i = 0; i < trace.events; i++) {
		const struct event *event = &trace.event[i];
		void **block = &blocks[event->block];

		if (event->gives) {
			free(*block);
			continue;
		}
		*block = malloc(trace.bytes[event->block]);
		if (!*block)
			failed = true;
		/* What nobody looks at, the compiler need not take. */
		__asm__ volatile("" : : "r"(*block) : "memory");
	}
}

static void *work(void *context)
{
	struct worker *worker = context;
	size_t step;

	for (;;) {
		pthread_barrier_wait(&barrier);
		if (ended)
			return NULL;
		worker->seconds = bench_seconds();
		for (step = 0; step < steps; step++)
			(peers_turn ? step_peer : step_ours)(worker->blocks);
		worker->seconds = bench_seconds() - worker->seconds;
		pthread_barrier_wait(&barrier);
	}
}

static int threads;

/* The slowest thread's time. */
static double round_of(bool peer)
{
	double slowest = 0;
	int i;

	peers_turn = peer;
	steps = peer ? peer_steps : our_steps;
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	for (i = 0; i < threads; i++)
		if (workers[i].seconds > slowest)
			slowest = workers[i].seconds;
	/* As if the peer had taken as many steps. */
	if (failed)
		fprintf(stderr, "bench: a block could not be had or given back\n");
	return failed ? -1 : slowest * our_steps / steps;
}

static uint64_t region_count(void)
{
	struct actmem_heap_stats stats;

	ACTMEM_INIT(&stats);
	if (actmem_heap_get_stats(heap, &stats))
		failed = true;
	return stats.regions;
}

/*
 * Two threads need more of their heap the more their steps overlap, and it is made longer
 * when that is more than ever before. The peers have as many rounds before it counts.
 */
static void settle(void)
{
	unsigned int settled = 0, tries;
	uint64_t before;

	for (tries = 0; !failed && settled < SETTLED_ROUNDS && tries < SETTLING_MOST; tries++) {
		before = region_count();
		round_of(false);
		round_of(true);
		settled = region_count() == before ? settled + 1 : 0;
	}
}

static double ours(const struct contest *contest)
{
	return round_of(false);
}

static double peer(const struct contest *contest)
{
	return round_of(true);
}

static int measure(const struct model *model, uint64_t tokens, const char *peer_name)
{
	char bench[64];
	struct contest contest = {
		.bench = bench,
		.peer_name = peer_name,
		.unit = "ns",
		.rounds = ROUNDS,
		.ours = ours,
		.peer = peer,
	};
	int i, status;

	snprintf(bench, sizeof(bench), "heap_pair_%s_%.31s_%d",
		 tokens == TOKENS ? "whole" : "shared", model->name, threads);
	our_steps = bench_size(PAIRS, 1) / trace.blocks + 1;
	contest.bytes = our_steps * trace.blocks;
	ended = false;
	pthread_barrier_init(&barrier, NULL, (unsigned int)threads + 1);
	for (i = 0; i < threads; i++) {
		workers[i].blocks = calloc(trace.blocks, sizeof(void *));
		if (!workers[i].blocks ||
		    pthread_create(&workers[i].thread, NULL, work, &workers[i])) {
			perror("a thread");
			exit(1);
		}
	}
	/* Some peers ask the kernel for each block, and take a thousand times as long. */
	peer_steps = 1;
	round_of(true);
	peer_steps = 1 + (size_t)(PEER_SECONDS / (round_of(true) / our_steps));
	if (peer_steps > our_steps)
		peer_steps = our_steps;
	settle();
	status = bench_run(&contest);
	ended = true;
	pthread_barrier_wait(&barrier);
	for (i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		free(workers[i].blocks);
	}
	pthread_barrier_destroy(&barrier);
	return status;
}

static int measure_model(const struct model *model, uint64_t tokens)
{
	const char *name = getenv("PEER_NAME") ? getenv("PEER_NAME") : "malloc";
	int status = 0;

	heap = trace_heap();
	if (!heap)
		return 1;
	trace = trace_step(model, SAVED_QKV, tokens);
	for (threads = 1; threads <= THREADS_MOST; threads++)
		status |= measure(model, tokens, name);
	trace_free(&trace);
	return actmem_heap_destroy(heap) ? 1 : status;
}

static int measure_tokens(const struct model *model)
{
	return (bench_is_smoke ? 0 : measure_model(model, TOKENS)) |
	       measure_model(model, TOKENS_SHARED);
}

int main(int argc, char **argv)
{
	return trace_models(argc, argv, measure_tokens);
}
