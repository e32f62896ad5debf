/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The allocator of large blocks, called by its own names, so that a sanitizer sees
 * all that it does: threads take, fill, resize, hand over and free blocks at random.
 * LARGE_SEED repeats a run as far as threads do.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/malloc/counters.h"
#include "preload/malloc/large.h"

#define THREADS		4
#define STEPS		3000
#define SLOTS		40
#define KIB		1024UL
#define BYTES_MAX	(3072 * KIB)

struct slot {
	unsigned char *memory;
	size_t bytes;
	unsigned char mark;
};

static struct slot handed[SLOTS];	/* from thread to thread */
static pthread_mutex_t handing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned int wrong;

/* One byte of each small page, and the last. */
static void mark(struct slot *slot, unsigned char value)
{
	size_t i;

	for (i = 0; i < slot->bytes; i += 4096)
		slot->memory[i] = value;
	slot->memory[slot->bytes - 1] = value;
	slot->mark = value;
}

static bool is_marked(const struct slot *slot, size_t bytes, unsigned char value)
{
	size_t i;

	for (i = 0; i < bytes; i += 4096)
		if (slot->memory[i] != value)
			return false;
	return true;
}

static void take(struct slot *slot, unsigned int *seed)
{
	size_t align = 1UL << rand_r(seed) % 22;

	slot->bytes = 64 * KIB + (size_t)rand_r(seed) % BYTES_MAX;
	slot->memory = large_alloc(slot->bytes, align);
	wrong += !slot->memory || (uintptr_t)slot->memory % align || !large_is(slot->memory) ||
		 large_usable_size(slot->memory) < slot->bytes;
	mark(slot, (unsigned char)(1 + rand_r(seed) % 255));
}

static void give(struct slot *slot)
{
	wrong += !is_marked(slot, slot->bytes, slot->mark) ||
		 slot->memory[slot->bytes - 1] != slot->mark;
	large_free(slot->memory);
	slot->memory = NULL;
}

static void resize(struct slot *slot, unsigned int *seed)
{
	size_t bytes = 64 * KIB + (size_t)rand_r(seed) % BYTES_MAX;

	if (!large_resize(slot->memory, bytes))
		return;
	wrong += !is_marked(slot, bytes < slot->bytes ? bytes : slot->bytes, slot->mark);
	slot->bytes = bytes;
	mark(slot, slot->mark);
}

static void hand_over(struct slot *slot, unsigned int *seed)
{
	struct slot *other = &handed[rand_r(seed) % SLOTS], own = *slot;

	pthread_mutex_lock(&handing);
	*slot = *other;
	*other = own;
	pthread_mutex_unlock(&handing);
}

static void *work(void *context)
{
	unsigned int seed = (unsigned int)(uintptr_t)context, step;
	struct slot slots[8] = { 0 }, *slot;

	for (step = 0; step < STEPS; step++) {
		slot = &slots[rand_r(&seed) % 8];
		if (!slot->memory)
			take(slot, &seed);
		else if (rand_r(&seed) % 3 == 0)
			resize(slot, &seed);
		else
			give(slot);
		if (rand_r(&seed) % 4 == 0)
			hand_over(slot, &seed);
		if (step % 500 == 0)
			large_trim();
	}
	for (slot = slots; slot < slots + 8; slot++)
		if (slot->memory)
			give(slot);
	return NULL;
}

static bool start(void)
{
	struct malloc_settings settings = {
		.is_wanted = true, .min_bytes = 64 * KIB, .decay_ms = 200,
	};
	struct reader reader = { NULL };

	large_start(&settings, &reader);
	return !*reader.error;
}

int main(void)
{
	const char *given = getenv("LARGE_SEED");
	unsigned int seed = given ? (unsigned int)strtoul(given, NULL, 0) :
			    (unsigned int)time(NULL) * 31 + (unsigned int)getpid();
	pthread_t threads[THREADS];
	struct malloc_counters *counters;
	unsigned int i;

	printf("# LARGE_SEED=%u\n", seed);
	if (!start())
		return 1;
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(seed + i)))
			return 1;
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < SLOTS; i++)
		if (handed[i].memory)
			give(&handed[i]);
	large_trim();
	counters = counters_get();
	printf("%s 1 - %d threads with blocks at random: %u wrong\n", wrong ? "not ok" : "ok",
	       THREADS, wrong);
	i = counters->blocks || counters->block_bytes || counters->pooled_bytes || counters->mapped_bytes ||
	    counters->refused_total || !counters->blocks_total;
	printf("%s 2 - all that should return to 0 has\n1..2\n", i ? "not ok" : "ok");
	return wrong || i;
}
