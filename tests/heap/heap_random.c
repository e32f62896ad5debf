/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Three heaps of different bounds beside a model that knows what lies where: blocks
 * of any length and alignment, freed by whichever thread, wrong frees, trims, heaps
 * that end. Threads take turns, so that a seed repeats a run.
 *
 *	SEED=1 STEPS=10000000 heap_random
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "heap_content.h"

#define STEPS		100000
#define TURN_STEPS	3000
#define THREADS		4
#define HEAPS		3
#define BLOCKS		600

struct model {
	struct actmem *am;
	uint64_t random;
	struct actmem_runtime *runtimes[HEAPS];
	struct actmem_heap *heaps[HEAPS];
	uint64_t taken[HEAPS];			/* ever */
	struct live blocks[BLOCKS];		/* in order of their addresses */
	unsigned int count;
	uint64_t steps, full, wrong, trims, ends;
};

static const struct bounds {
	uint64_t grow, limit, chunk;
} bounds[HEAPS] = {
	{ 6 * MIB, 10 * MIB, 2 * MIB },
	{ 2 * MIB, 16 * MIB, 64ULL << 30 },
	{ 8 * MIB, 14 * MIB, 6 * MIB },
};

/* Where the first block lies that begins at or behind @address. */
static unsigned int place_of(const struct model *m, const unsigned char *address)
{
	unsigned int low = 0, high = m->count, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (m->blocks[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void tell(const struct model *m, const char *what)
{
	tap_bail("step %llu: %s", (unsigned long long)m->steps, what);
}

static void enter(struct model *m, const struct live *block)
{
	unsigned int at = place_of(m, block->address);
	const struct live *after = &m->blocks[at], *before = after - 1;

	if ((at < m->count && after->address < block->address + rounded(block->bytes)) ||
	    (at && before->address + rounded(before->bytes) > block->address))
		tell(m, "a block overlaps another");
	memmove(&m->blocks[at + 1], &m->blocks[at], (m->count - at) * sizeof(*block));
	m->blocks[at] = *block;
	m->count++;
}

static void leave(struct model *m, unsigned int at)
{
	m->count--;
	memmove(&m->blocks[at], &m->blocks[at + 1], (m->count - at) * sizeof(m->blocks[0]));
}

static void make(struct model *m, unsigned int heap)
{
	m->heaps[heap] = make_chunked(m->am, bounds[heap].grow, bounds[heap].limit,
				      m->runtimes[heap]);
	m->taken[heap] = 0;
}

/* The heap's sums are those of the model. */
static struct actmem_heap_stats check_sums(struct model *m, unsigned int heap)
{
	struct actmem_heap_stats stats = stats_of(m->heaps[heap]);
	uint64_t count = 0, bytes = 0, used = 0, left;
	unsigned int i;

	for (i = 0; i < m->count; i++) {
		if (m->blocks[i].heap != heap)
			continue;
		count++;
		bytes += m->blocks[i].bytes;
		used += rounded(m->blocks[i].bytes);
	}
	left = stats.region_bytes - stats.used_bytes;
	if (stats.blocks != count || stats.block_bytes != bytes || stats.used_bytes != used)
		tell(m, "the heap has other blocks than the model");
	if (stats.blocks_total != m->taken[heap])
		tell(m, "the heap has handed out another number of blocks");
	if (stats.region_bytes > bounds[heap].limit ||
	    stats.region_bytes_peak > bounds[heap].limit)
		tell(m, "the heap is beyond its limit");
	if (stats.used_bytes > stats.region_bytes || stats.used_bytes_peak < stats.used_bytes)
		tell(m, "the heap has more in use than it has");
	if (stats.largest_free > left || !stats.free_pieces != !left ||
	    !stats.largest_free != !left)
		tell(m, "the heap has another length free than it says");
	return stats;
}

/* A refusal is right if there is no room for the block, and none can be made. */
static void check_refusal(struct model *m, unsigned int heap, uint64_t bytes, uint64_t align)
{
	struct actmem_heap_stats stats;
	uint64_t slack = align > UNIT ? align - UNIT : 0;

	if (!strstr(actmem_error(), "limit_bytes"))
		tell(m, "refused for another reason than the limit");
	stats = check_sums(m, heap);
	if (stats.largest_free >= rounded(bytes) + slack)
		tell(m, "refused in spite of a free piece that is long enough");
	bytes = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	if (stats.region_bytes + bytes <= bounds[heap].limit)
		tell(m, "refused though the limit permits another region");
	m->full++;
}

static void take(struct model *m)
{
	struct live block = { .heap = (unsigned int)random_below(&m->random, HEAPS) };
	uint64_t align = some_align(&m->random);
	void *address;
	int error;

	block.bytes = some_bytes(&m->random);
	block.content = next_random(&m->random);
	error = actmem_heap_alloc(m->heaps[block.heap], block.bytes, align, &address);
	if (bounds[block.heap].chunk && block.bytes > bounds[block.heap].chunk) {
		if (error != -EINVAL)
			tell(m, "a block longer than a chunk can be had");
		return;
	}
	if (error == -ENOMEM)
		check_refusal(m, block.heap, block.bytes, align);
	else if (error)
		tell(m, "a block is refused");
	if (error)
		return;
	block.address = address;
	if ((uintptr_t)address % (align > UNIT ? align : UNIT))
		tell(m, "a block is not aligned");
	m->taken[block.heap]++;
	enter(m, &block);
	visit(&block, true);
}

static void give(struct model *m, unsigned int at)
{
	struct live block = m->blocks[at];

	if (!visit(&block, false))
		tell(m, "a block lost what was written");
	if (actmem_heap_free(m->heaps[block.heap], block.address))
		tell(m, "a block cannot be freed");
	leave(m, at);
	if (one_in(&m->random, 16)) {
		if (actmem_heap_free(m->heaps[block.heap], block.address) != -EINVAL)
			tell(m, "a block can be freed twice");
		m->wrong++;
	}
}

static void give_wrongly(struct model *m)
{
	unsigned int heap = (unsigned int)random_below(&m->random, HEAPS), at;
	unsigned char *wrong = (unsigned char *)m;
	uint64_t offset;

	if (m->count && !one_in(&m->random, 4)) {
		at = (unsigned int)random_below(&m->random, m->count);
		offset = one_in(&m->random, 2) ? random_below(&m->random, 64) * UNIT :
						 random_below(&m->random, m->blocks[at].bytes);
		wrong = m->blocks[at].address + offset;
		at = place_of(m, wrong);
		if (at < m->count && m->blocks[at].address == wrong && m->blocks[at].heap == heap)
			return;
	}
	if (actmem_heap_free(m->heaps[heap], one_in(&m->random, 16) ? NULL : wrong) != -EINVAL)
		tell(m, "what is no block can be freed");
	m->wrong++;
}

static void ask_wrongly(struct model *m)
{
	unsigned int heap = (unsigned int)random_below(&m->random, HEAPS);
	uint64_t chunk = bounds[heap].chunk;
	void *address;

	if (actmem_heap_alloc(m->heaps[heap], 0, 0, &address) != -EINVAL ||
	    actmem_heap_alloc(m->heaps[heap], 1ULL << 60, 0, &address) != -EINVAL ||
	    actmem_heap_alloc(m->heaps[heap], 4096, 4 * MIB, &address) != -EINVAL ||
	    actmem_heap_alloc(m->heaps[heap], 4096, 3 << 10, &address) != -EINVAL ||
	    (chunk && actmem_heap_alloc(m->heaps[heap], chunk + 1, 0, &address) != -EINVAL))
		tell(m, "a block can be had that cannot be");
	m->wrong++;
}

/* The longest free piece can be had, without another region. */
static void take_longest(struct model *m, unsigned int heap)
{
	struct actmem_heap_stats before = check_sums(m, heap);
	void *address;

	if (!before.largest_free)
		return;
	if (actmem_heap_alloc(m->heaps[heap], before.largest_free, 0, &address) ||
	    stats_of(m->heaps[heap]).region_bytes != before.region_bytes ||
	    actmem_heap_free(m->heaps[heap], address))
		tell(m, "the longest free piece cannot be had");
	m->taken[heap]++;
}

/* Where the mapping begins that the address lies in: that of its region. */
struct mapping {
	uintptr_t first, end;
};

static struct mapping mapping_of(FILE *maps, const struct live *block)
{
	struct mapping mapping = { 0, 0 };
	unsigned long first, end;
	char line[4096];

	/* Blocks come in order, as mappings do. */
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx", &first, &end) == 2 && end > (uintptr_t)block->address) {
			mapping = (struct mapping){ first, end };
			break;
		}
	}
	return mapping;
}

/* Blocks lie within regions and their chunks, and no region is left without one. */
static void check_places(struct model *m)
{
	struct mapping mapping = { 0, 0 };
	uint64_t regions[HEAPS] = { 0 };
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned int i;

	if (!maps)
		tap_bail("/proc/self/maps");
	for (i = 0; i < m->count; i++) {
		const struct live *block = &m->blocks[i];
		uintptr_t first = (uintptr_t)block->address, last = first + block->bytes - 1;
		uint64_t chunk = bounds[block->heap].chunk;

		if (first >= mapping.end) {
			mapping = mapping_of(maps, block);
			regions[block->heap]++;
		}
		if (first < mapping.first || last >= mapping.end)
			tell(m, "a block lies across the end of a region");
		if (chunk && (first - mapping.first) / chunk != (last - mapping.first) / chunk)
			tell(m, "a block lies across the edge of a chunk");
	}
	fclose(maps);
	for (i = 0; i < HEAPS; i++)
		if (check_sums(m, i).regions != regions[i])
			tell(m, "after a trim there are regions without blocks");
}

static void trim(struct model *m)
{
	unsigned int i;

	for (i = 0; i < HEAPS; i++)
		if (actmem_heap_trim(m->heaps[i]))
			tell(m, "actmem_heap_trim");
	check_places(m);
	m->trims++;
}

/* A heap ends when its last block has gone, and not before; another follows. */
static void end_one(struct model *m)
{
	unsigned int heap = (unsigned int)random_below(&m->random, HEAPS), i;

	if (stats_of(m->heaps[heap]).blocks && actmem_heap_destroy(m->heaps[heap]) != -EBUSY)
		tell(m, "a heap with blocks has ended");
	for (i = m->count; i--; )
		if (m->blocks[i].heap == heap)
			give(m, i);
	check_sums(m, heap);
	if (actmem_heap_destroy(m->heaps[heap]))
		tell(m, "a heap without blocks cannot end");
	make(m, heap);
	m->ends++;
}

static void step(struct model *m)
{
	/* Rises and falls, as the memory of a training does. */
	bool rising = m->steps / (4 * BLOCKS) % 2;

	m->steps++;
	if (one_in(&m->random, 20000))
		end_one(m);
	else if (one_in(&m->random, 5000))
		trim(m);
	else if (one_in(&m->random, 2000))
		take_longest(m, (unsigned int)random_below(&m->random, HEAPS));
	else if (one_in(&m->random, 200))
		ask_wrongly(m);
	else if (one_in(&m->random, 50))
		give_wrongly(m);
	else if (m->count < BLOCKS && random_below(&m->random, 9) < (rising ? 5 : 4))
		take(m);
	else if (m->count)
		give(m, (unsigned int)random_below(&m->random, m->count));
	if (!(m->steps % 1024))
		check_sums(m, (unsigned int)(m->steps / 1024 % HEAPS));
}

/* Turns of threads: one works, the others wait. Who is told to end is replaced. */
struct turns {
	struct model *model;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int whose;			/* -1: the main thread's */
	unsigned int steps;
	bool last;
};

struct worker {
	struct turns *turns;
	int number;
	pthread_t thread;
};

static void *work_in_turn(void *context)
{
	struct worker *worker = context;
	struct turns *turns = worker->turns;
	bool last = false;
	unsigned int i;

	while (!last) {
		pthread_mutex_lock(&turns->lock);
		while (turns->whose != worker->number)
			pthread_cond_wait(&turns->changed, &turns->lock);
		last = turns->last;
		for (i = 0; i < turns->steps; i++)
			step(turns->model);
		turns->whose = -1;
		pthread_cond_broadcast(&turns->changed);
		pthread_mutex_unlock(&turns->lock);
	}
	return NULL;
}

static void start(struct worker *worker)
{
	worker->thread = start_thread(work_in_turn, worker);
}

static void give_turn(struct turns *turns, struct worker *worker, unsigned int steps, bool last)
{
	pthread_mutex_lock(&turns->lock);
	turns->whose = worker->number;
	turns->steps = steps;
	turns->last = last;
	pthread_cond_broadcast(&turns->changed);
	while (turns->whose != -1)
		pthread_cond_wait(&turns->changed, &turns->lock);
	pthread_mutex_unlock(&turns->lock);
	if (last)
		pthread_join(worker->thread, NULL);
}

static void test_turns(struct actmem *am)
{
	uint64_t seed = seed_given(), steps = number_given("STEPS", STEPS);
	struct model *m = calloc(1, sizeof(*m));
	struct turns turns = { .model = m, .whose = -1 };
	struct worker workers[THREADS];
	struct actmem_heap_stats stats;
	unsigned int i;
	bool last;

	m->am = am;
	m->random = seed;
	pthread_mutex_init(&turns.lock, NULL);
	pthread_cond_init(&turns.changed, NULL);
	for (i = 0; i < HEAPS; i++) {
		m->runtimes[i] = open_chunks(am, bounds[i].chunk);
		make(m, i);
	}
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .turns = &turns, .number = (int)i };
		start(&workers[i]);
	}
	while (m->steps < steps) {
		i = (unsigned int)random_below(&m->random, THREADS);
		last = one_in(&m->random, 8);
		give_turn(&turns, &workers[i],
			  (unsigned int)random_below(&m->random, TURN_STEPS), last);
		if (last)
			start(&workers[i]);
	}
	for (i = 0; i < THREADS; i++)
		give_turn(&turns, &workers[i], 0, true);
	ok(true, "%llu steps by threads in turn: %llu refused by a limit, %llu wrong, %llu trims, %llu heaps ended",
	   (unsigned long long)m->steps, (unsigned long long)m->full,
	   (unsigned long long)m->wrong, (unsigned long long)m->trims,
	   (unsigned long long)m->ends);
	ok(m->full && m->wrong && m->trims, "with something of everything");
	while (m->count)
		give(m, m->count - 1);
	trim(m);
	for (i = 0; i < HEAPS; i++) {
		stats = check_sums(m, i);
		ok(!stats.regions && !stats.region_bytes && !stats.largest_free,
		   "trimmed to nothing");
		returns(actmem_heap_destroy(m->heaps[i]), 0);
		returns(actmem_runtime_close(m->runtimes[i]), 0);
	}
	pthread_cond_destroy(&turns.changed);
	pthread_mutex_destroy(&turns.lock);
	free(m);
}

int main(void)
{
	return RUN_TESTS(test_turns);
}
