/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that all use a heap at once, take any blocks, and free each other's, while
 * the heap is trimmed, and says now and then that it is full.
 *
 *	SEED=1 STEPS=10000000 heap_crowd
 */
#include <errno.h>
#include <pthread.h>

#include "heap_content.h"

#define STEPS		100000
#define THREADS		4
#define EXCHANGED	64
#define GROW		(4 * MIB)
#define LIMIT		(16 * MIB)

struct crowd {
	struct actmem_heap *heap;
	pthread_mutex_t lock;
	struct live exchange[EXCHANGED];	/* what one allocates another frees */
	uint64_t steps;
};

struct one {
	struct crowd *crowd;
	pthread_t thread;
	uint64_t random;
	uint64_t full;
	const char *wrong;
};

static const char *take_alone(struct one *one, struct live *block)
{
	uint64_t align = some_align(&one->random);
	void *address;
	int error;

	*block = (struct live){ .bytes = some_bytes(&one->random),
				.content = next_random(&one->random) };
	error = actmem_heap_alloc(one->crowd->heap, block->bytes, align, &address);
	if (error) {
		one->full++;
		return error == -ENOMEM && strstr(actmem_error(), "limit_bytes") ? NULL :
		       "a block is refused";
	}
	if ((uintptr_t)address % (align > UNIT ? align : UNIT))
		return "a block is not aligned";
	block->address = address;
	visit(block, true);
	/* Nobody else has it, so that this is wrong whatever the others do. */
	if (one_in(&one->random, 16) && block->bytes > UNIT &&
	    actmem_heap_free(one->crowd->heap, block->address + UNIT) != -EINVAL)
		return "what is no block can be freed";
	return NULL;
}

static const char *give_alone(struct one *one, const struct live *block)
{
	if (!visit(block, false))
		return "a block lost what was written";
	if (actmem_heap_free(one->crowd->heap, block->address))
		return "a block cannot be freed";
	return NULL;
}

static const char *disturb(struct one *one)
{
	struct actmem_heap_stats stats = stats_of(one->crowd->heap);

	if (stats.region_bytes > LIMIT)
		return "the heap is beyond its limit";
	return actmem_heap_trim(one->crowd->heap) ? "actmem_heap_trim" : NULL;
}

static void *work_at_once(void *context)
{
	struct one *one = context;
	struct crowd *crowd = one->crowd;
	struct live mine, other;
	unsigned int slot;
	uint64_t i;

	for (i = 0; i < crowd->steps && !one->wrong; i++) {
		one->wrong = take_alone(one, &mine);
		slot = (unsigned int)random_below(&one->random, EXCHANGED);
		pthread_mutex_lock(&crowd->lock);
		other = crowd->exchange[slot];
		crowd->exchange[slot] = mine;
		pthread_mutex_unlock(&crowd->lock);
		if (!one->wrong && other.address)
			one->wrong = give_alone(one, &other);
		if (!one->wrong && one_in(&one->random, 2000))
			one->wrong = disturb(one);
	}
	return NULL;
}

static void test_at_once(struct actmem *am)
{
	uint64_t seed = seed_given(), steps = number_given("STEPS", STEPS);
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	struct one ones[THREADS] = { 0 };
	const char *wrong = NULL;
	unsigned int i;

	crowd->heap = make_heap(am, GROW, LIMIT);
	crowd->steps = steps / THREADS;
	pthread_mutex_init(&crowd->lock, NULL);
	for (i = 0; i < THREADS; i++) {
		ones[i].crowd = crowd;
		ones[i].random = seed + i;
		ones[i].thread = start_thread(work_at_once, &ones[i]);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(ones[i].thread, NULL);
		wrong = ones[i].wrong ? ones[i].wrong : wrong;
	}
	for (i = 0; i < EXCHANGED; i++)
		if (crowd->exchange[i].address && !wrong)
			wrong = give_alone(&ones[0], &crowd->exchange[i]);
	ok(!wrong, "%llu steps by %d threads at once%s%s", (unsigned long long)steps, THREADS,
	   wrong ? ": " : "", wrong ? wrong : "");
	ok(!stats_of(crowd->heap).blocks && !stats_of(crowd->heap).used_bytes, "no block is left");
	returns(actmem_heap_destroy(crowd->heap), 0);
	pthread_mutex_destroy(&crowd->lock);
	free(crowd);
}

int main(void)
{
	return RUN_TESTS(test_at_once);
}
