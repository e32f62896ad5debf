/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The heap against a simple reference, at random and by several threads:
 * blocks never overlap, keep what was written, and all come back.
 * HEAP_SEED repeats a run.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "heap_test.h"

#define GROW		(8 * MIB)
#define LIMIT		(32 * MIB)
#define BLOCKS		512
#define STEPS		20000
#define THREADS		4

struct live {
	unsigned char *address;
	uint64_t bytes;
	unsigned char mark;
};

static uint64_t next_random(uint64_t *state)
{
	/* splitmix64 */
	uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* Has the threads give back what they keep, and leaves the regions. */
static void recall(struct actmem_heap *heap)
{
	struct actmem_heap_tuning tuning;

	ACTMEM_INIT(&tuning);
	if (actmem_heap_tune(heap, &tuning))
		tap_bail("actmem_heap_tune");
}

/* Marks both ends and the middle, which overlapping blocks would change. */
static void mark(const struct live *block)
{
	block->address[0] = block->mark;
	block->address[block->bytes / 2] = block->mark;
	block->address[block->bytes - 1] = block->mark;
}

static bool is_marked(const struct live *block)
{
	return block->address[0] == block->mark &&
	       block->address[block->bytes / 2] == block->mark &&
	       block->address[block->bytes - 1] == block->mark;
}

static bool overlaps(const struct live *blocks, const struct live *one)
{
	unsigned int i;

	for (i = 0; i < BLOCKS; i++)
		if (&blocks[i] != one && blocks[i].address &&
		    one->address < blocks[i].address + blocks[i].bytes &&
		    blocks[i].address < one->address + one->bytes)
			return true;
	return false;
}

/* Mostly short, sometimes long; a random alignment. */
static uint64_t random_bytes(uint64_t *state)
{
	return 1 + next_random(state) % (1ULL << (4 + next_random(state) % 17));
}

static bool take_one(struct actmem_heap *heap, struct live *block, uint64_t *state)
{
	uint64_t align = next_random(state) % 8 ? 0 : 1ULL << next_random(state) % 22;
	void *address;
	int error;

	block->bytes = random_bytes(state);
	error = actmem_alloc(heap, block->bytes, align, &address);
	if (error == -ENOMEM && strstr(actmem_error(), "limit_bytes"))
		return true;
	if (error)
		return false;
	block->address = address;
	block->mark = (unsigned char)next_random(state);
	mark(block);
	return !((uintptr_t)address % (align > 256 ? align : 256));
}

static bool give_one(struct actmem_heap *heap, struct live *block)
{
	bool marked = is_marked(block);
	void *address = block->address;

	block->address = NULL;
	return marked && !actmem_free(heap, address);
}

static bool sums_agree(struct actmem_heap *heap, const struct live *blocks)
{
	struct actmem_heap_stats stats = stats_of(heap);
	uint64_t count = 0, bytes = 0, used = 0;
	unsigned int i;

	for (i = 0; i < BLOCKS; i++) {
		if (!blocks[i].address)
			continue;
		count++;
		bytes += blocks[i].bytes;
		used += (blocks[i].bytes + 255) / 256 * 256;
	}
	return stats.blocks == count && stats.block_bytes == bytes && stats.used_bytes == used &&
	       stats.region_bytes <= LIMIT && stats.used_bytes_peak >= used;
}

static void test_random(struct actmem *am, uint64_t seed)
{
	struct actmem_heap *heap = make_heap(am, GROW, LIMIT);
	static struct live blocks[BLOCKS];
	bool good = true, apart = true, sums = true;
	struct actmem_heap_stats stats;
	unsigned int step, i;

	for (step = 0; step < STEPS && good && apart && sums; step++) {
		struct live *block = &blocks[next_random(&seed) % BLOCKS];

		if (block->address) {
			good = give_one(heap, block);
		} else {
			good = take_one(heap, block, &seed);
			apart = !block->address || !overlaps(blocks, block);
		}
		if (step % 1000 == 999) {
			sums = sums_agree(heap, blocks);
			actmem_heap_trim(heap);
		}
	}
	ok(good, "%u random steps succeed and keep what was written", step);
	ok(apart, "no two blocks overlap");
	ok(sums, "the heap's sums agree with the reference");
	returns(actmem_heap_destroy(heap), -EBUSY);
	says("blocks of");
	for (i = 0; i < BLOCKS; i++)
		if (blocks[i].address)
			good = give_one(heap, &blocks[i]) && good;
	ok(good, "every block goes back");
	recall(heap);
	stats = stats_of(heap);
	ok(!stats.blocks && !stats.used_bytes && !stats.cached_bytes &&
	   stats.free_pieces == stats.regions,
	   "free neighbours have merged back to whole regions");
	returns(actmem_heap_trim(heap), 0);
	stats = stats_of(heap);
	ok(!stats.regions && !stats.region_bytes && !stats.largest_free, "trimmed to nothing");
	returns(actmem_heap_destroy(heap), 0);
}

struct worker {
	struct actmem_heap *heap;
	uint64_t seed;
	bool passed;
};

/* What one thread allocates, the next frees. */
static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;
static struct live exchange[64];

static void *work(void *context)
{
	struct worker *worker = context;
	struct live mine = { NULL, 0, 0 }, other;
	unsigned int step, slot;

	worker->passed = true;
	for (step = 0; step < STEPS && worker->passed; step++) {
		if (!mine.address)
			worker->passed = take_one(worker->heap, &mine, &worker->seed);
		slot = (unsigned int)(next_random(&worker->seed) % 64);
		pthread_mutex_lock(&exchange_lock);
		other = exchange[slot];
		exchange[slot] = mine;
		pthread_mutex_unlock(&exchange_lock);
		mine.address = NULL;
		if (other.address)
			worker->passed = give_one(worker->heap, &other) && worker->passed;
	}
	return NULL;
}

static void test_threads(struct actmem *am, uint64_t seed)
{
	struct actmem_heap *heap = make_heap(am, GROW, LIMIT);
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	bool passed = true;
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ heap, seed + i, false };
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			tap_bail("pthread_create");
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		passed = passed && workers[i].passed;
	}
	for (i = 0; i < 64; i++)
		if (exchange[i].address)
			passed = give_one(heap, &exchange[i]) && passed;
	ok(passed, "%d threads take and give each other's blocks", THREADS);
	ok(!stats_of(heap).blocks, "no block is left");
	returns(actmem_heap_destroy(heap), 0);
}

static void test_growth(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, GROW, LIMIT);
	void *small, *large, *aligned, *more;

	ok(!stats_of(heap).regions, "a new heap has no region");
	returns(actmem_alloc(heap, 1, 0, &small), 0);
	ok(stats_of(heap).region_bytes == GROW, "it grows by grow_bytes");
	returns(actmem_alloc(heap, GROW + 1, 0, &large), 0);
	ok(stats_of(heap).region_bytes == 2 * GROW + 2 * MIB, "or by what is asked for");
	returns(actmem_alloc(heap, 2 * MIB, 2 * MIB, &aligned), 0);
	ok(!((uintptr_t)aligned % (2 * MIB)), "alignment is kept");
	returns(actmem_alloc(heap, LIMIT, 0, &more), -ENOMEM);
	says("32.0 MiB");
	ok(stats_of(heap).blocks == 3, "a failure takes nothing");
	returns(actmem_free(heap, small), 0);
	returns(actmem_free(heap, small), -EINVAL);
	returns(actmem_free(heap, (char *)large + 256), -EINVAL);
	returns(actmem_free(heap, &heap), -EINVAL);
	returns(actmem_free(heap, NULL), -EINVAL);
	says("not the start of a live block");
	returns(actmem_free(heap, large), 0);
	returns(actmem_heap_trim(heap), 0);
	ok(stats_of(heap).regions == 1, "a region with a live block is kept");
	returns(actmem_free(heap, aligned), 0);
	returns(actmem_heap_destroy(heap), 0);
}

/* Blocks of layers taken forward and given backward, as activations are. */
static void test_layers(struct actmem *am)
{
	const uint64_t sizes[] = { 40000, 5120, 5120, 81920 };
	struct actmem_heap *heap = make_heap(am, GROW, LIMIT);
	uint64_t used = 0, sum = 0, regions = 0;
	void *blocks[32 * 4];
	unsigned int step, i;

	for (step = 0; step < 3; step++) {
		for (i = 0; i < 128; i++)
			if (actmem_alloc(heap, sizes[i % 4], 0, &blocks[i]))
				tap_bail("actmem_alloc");
		if (!step) {
			used = stats_of(heap).used_bytes;
			sum = stats_of(heap).block_bytes;
			regions = stats_of(heap).region_bytes;
		}
		while (i--)
			if (actmem_free(heap, blocks[i]))
				tap_bail("actmem_free");
	}
	ok(used * 100 <= sum * 102, "%llu bytes take %llu", (unsigned long long)sum,
	   (unsigned long long)used);
	ok(stats_of(heap).used_bytes_peak == used && stats_of(heap).region_bytes == regions,
	   "every step fits where the first did");
	returns(actmem_heap_destroy(heap), 0);
}

int main(void)
{
	const char *given = getenv("HEAP_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) :
			(uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();

	printf("# HEAP_SEED=%llu\n", (unsigned long long)seed);
	test_growth(am);
	test_layers(am);
	test_random(am, seed);
	test_threads(am, seed);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	return tap_end();
}
