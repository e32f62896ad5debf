/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Large blocks for malloc.
 *
 * One lock for all pools is enough: a thread that takes a large block will touch all of it, which
 * takes a thousand times as long. The lock is held over fork(), so that the child finds consistent
 * bookkeeping. Other handlers of fork() may allocate, so the thread that forks does not take the
 * lock again in the meantime.
 *
 * Each node has two pools, one for short and one for long blocks. In a common pool, short blocks
 * that stay allocated would fragment the memory of long ones.
 *
 * The library starts no thread to give free memory back to the kernel, because a program does not
 * expect threads that it did not start. Instead, a call that allocates or frees a large block gives
 * back memory that has been free for a while.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/base.h"
#include "preload/malloc/counters.h"
#include "preload/malloc/large.h"
#include "preload/malloc/own.h"
#include "preload/malloc/range.h"

/*
 * pthread_atfork() calls this function. But pthread_atfork() is linked into each library that uses
 * it, and this library would then not load if the C library is not glibc.
 */
int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
		      void *library) __attribute__((weak));

#define NODES_MAX	64
#define POOLS_MAX	(2 * NODES_MAX)
#define SHORT_BYTES	(2UL << 20)
/*
 * A tick is 1/DECAY_TICKS of the decay time. Free memory is returned after DECAY_TICKS to
 * DECAY_TICKS + 1 ticks.
 */
#define DECAY_TICKS	8

_Static_assert(CHUNK_BYTES == 1UL << LARGE_CHUNK_SHIFT, "CHUNK_BYTES must match LARGE_CHUNK_SHIFT");

struct pool {
	struct extents extents;
	struct range *ranges;
	unsigned int node, number;
};

struct large_gate large_gate = { .min_bytes = SIZE_MAX };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Number of fork()s under way: a signal handler may call fork() during another one. */
static __thread volatile sig_atomic_t forking;
/* Set before the lock is taken, so that a fork() in a signal handler does not take it. */
static __thread volatile sig_atomic_t inside;
/* Set in a child of such a fork() until it takes the lock again. */
static volatile sig_atomic_t counts_as_parent;

static struct pool *pools[POOLS_MAX];
static struct place place;
static uint64_t keep_bytes, tick_ms;
static uint64_t tick;

static uint64_t range_bytes, filled_bytes, taken_bytes, taken_blocks;

static void lock_pools(void)
{
	if (forking)
		return;
	inside = true;
	pthread_mutex_lock(&mutex);
	if (counts_as_parent) {
		counts_as_parent = false;
		counters_renew();
	}
}

static void unlock_pools(void)
{
	if (forking)
		return;
	pthread_mutex_unlock(&mutex);
	inside = false;
}

static void before_fork(void)
{
	if (!inside && !forking++)
		pthread_mutex_lock(&mutex);
}

static void after_fork_in_parent(void)
{
	if (inside)
		return;
	if (forking == 1)
		pthread_mutex_unlock(&mutex);
	forking--;
}

static void after_fork_in_child(void)
{
	if (inside) {
		counts_as_parent = true;
		return;
	}
	counters_renew();
	if (forking == 1)
		pthread_mutex_init(&mutex, NULL);
	forking--;
}

/* Aborts without the lock, because a handler of SIGABRT may allocate. */
static __attribute__((noreturn)) void abort_wrong_pointer(void)
{
	static const char words[] =
		"actmem: the program passed a pointer that is not an allocated block, or was already freed\n";

	unlock_pools();
	if (write(STDERR_FILENO, words, sizeof(words) - 1) < 0)
		abort();
	abort();
}

/*
 * Returns an upper bound of the bytes that are free and were not returned to the kernel. It is not
 * exact, because a block's pages may never have been touched.
 */
static uint64_t count_pooled(void)
{
	return filled_bytes > taken_bytes ? filled_bytes - taken_bytes : 0;
}

static void set_counter(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, value, memory_order_relaxed);
}

static void increment_counter(_Atomic uint64_t *counter)
{
	set_counter(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1);
}

static void set_counters(void)
{
	struct malloc_counters *counters = counters_get();

	set_counter(&counters->blocks, taken_blocks);
	set_counter(&counters->block_bytes, taken_bytes);
	set_counter(&counters->pooled_bytes, count_pooled());
	set_counter(&counters->mapped_bytes, range_bytes);
}

static void set_owners(const struct range *range, uint8_t owner)
{
	memset(&large_gate.owners[range->base >> LARGE_CHUNK_SHIFT], owner,
	       range->length >> LARGE_CHUNK_SHIFT);
}

static struct pool *find_pool(const void *memory)
{
	unsigned int owner = large_gate.owners[(uintptr_t)memory >> LARGE_CHUNK_SHIFT];

	return owner ? pools[owner - 1] : NULL;
}

static struct pool *find_pool_of_caller(size_t length)
{
	unsigned int node = place_of_caller(&place);
	unsigned int number = node % NODES_MAX * 2 + (length < SHORT_BYTES);
	struct pool *pool = pools[number];

	if (pool)
		return pool;
	pool = own_calloc(1, sizeof(*pool));
	if (!pool || extents_init(&pool->extents))
		return NULL;
	pool->node = node;
	pool->number = number;
	pools[number] = pool;
	return pool;
}

static struct range *find_range(const struct pool *pool, uintptr_t address)
{
	struct range *range = pool->ranges;

	while (!range_has(range, address))
		range = range->next;
	return range;
}

static size_t round_to_chunks(size_t bytes)
{
	return (bytes + CHUNK_BYTES - 1) & ~(CHUNK_BYTES - 1);
}

/*
 * Adds a range. Its length grows with the pool, to keep the number of ranges small. If that fails,
 * adds one that is just long enough.
 */
static bool grow_pool(struct pool *pool, size_t length)
{
	size_t least = round_to_chunks(length);
	size_t better = round_to_chunks(pool->extents.range_bytes / 2);
	struct range *range = NULL;

	if (better > least)
		range = range_make(&place, pool->node, better);
	if (!range)
		range = range_make(&place, pool->node, least);
	if (!range)
		return false;
	range->first = extents_add_range(&pool->extents, (void *)range->base, range->length,
					 EXTENT_UNIT);
	if (!range->first || (range->base + range->length - 1) >> LARGE_CHUNK_SHIFT >= LARGE_CHUNKS) {
		if (range->first)
			extents_remove_range(&pool->extents, range->first);
		range_unmake(range);
		return false;
	}
	range->next = pool->ranges;
	pool->ranges = range;
	range_bytes += range->length;
	set_owners(range, (uint8_t)(1 + pool->number));
	return true;
}

static void drop_range(struct pool *pool, struct range **link)
{
	struct range *range = *link;

	*link = range->next;
	set_owners(range, 0);
	extents_remove_range(&pool->extents, range->first);
	range_bytes -= range->length;
	range_unmake(range);
}

static uintptr_t begin_of(const struct extent *block)
{
	return (uintptr_t)block->address;
}

static uintptr_t end_of(const struct extent *block)
{
	return begin_of(block) + block->length;
}

static size_t release_block(struct range *range, const struct extent *block, uint64_t age,
			    size_t most)
{
	size_t released = range_release(range, begin_of(block), end_of(block), tick, age, most);

	filled_bytes -= released;
	return released;
}

/*
 * Gives back to the kernel the pages that have been free for @age, and unmaps empty ranges. Returns
 * true if there were such pages.
 */
static bool release_pages(uint64_t age)
{
	struct range **link, *range;
	struct extent *block;
	bool any = false;
	unsigned int i;

	for (i = 0; i < POOLS_MAX; i++) {
		for (link = pools[i] ? &pools[i]->ranges : NULL; link && *link;) {
			range = *link;
			for (block = range->first; block; block = block->after)
				if (block->is_free && release_block(range, block, age, SIZE_MAX))
					any = true;
			if (extents_range_is_free(range->first) && !range->filled)
				drop_range(pools[i], link);
			else
				link = &range->next;
		}
	}
	return any;
}

static void age_blocks(void)
{
	uint64_t now, passed;

	if (!tick_ms)
		return;
	now = clock_tick_ns() / NS_PER_MS / tick_ms;
	passed = now - tick;
	tick = now;
	if (passed)
		release_pages(passed > DECAY_TICKS ? 0 : DECAY_TICKS);
}

static int take_block(struct pool *pool, size_t length, size_t align, struct extent **block)
{
	int error = extents_take(&pool->extents, length, align, block);

	if (error == -ENOSPC && grow_pool(pool, length))
		error = extents_take(&pool->extents, length, align, block);
	return error;
}

/*
 * Takes a block with free memory of the same length behind it, so that the block can grow. Another
 * block may still get that memory.
 */
static int take_growing_block(struct pool *pool, size_t length, size_t align, struct extent **block)
{
	if (take_block(pool, 2 * length, align, block))
		return take_block(pool, length, align, block);
	extents_resize(&pool->extents, *block, length);
	return 0;
}

void *large_alloc(size_t bytes, size_t align, enum large_use use)
{
	size_t length = extent_length(bytes);
	struct extent *block = NULL;
	struct taken_pages taken;
	int saved = errno, error = -ENOMEM;
	struct range *range;
	struct pool *pool;
	void *memory;

	if (bytes > EXTENT_BYTES_MAX / 4 || align > EXTENT_ALIGN_MAX)
		return NULL;
	if (align < EXTENT_UNIT)
		align = EXTENT_UNIT;
	lock_pools();
	age_blocks();
	pool = find_pool_of_caller(length);
	if (pool)
		error = use == LARGE_GROWS ? take_growing_block(pool, length, align, &block) :
			take_block(pool, length, align, &block);
	/*
	 * Free pages that were kept, here or in another pool, may be all that is left. Return them,
	 * and try again.
	 */
	if (error && pool) {
		release_pages(0);
		error = take_block(pool, length, align, &block);
	}
	if (error) {
		increment_counter(&counters_get()->refused_total);
		unlock_pools();
		errno = saved;
		return NULL;
	}
	length = block->length;
	memory = (void *)begin_of(block);
	range = find_range(pool, begin_of(block));
	filled_bytes -= range->filled * PAGE_BYTES;
	taken = range_take(range, begin_of(block), end_of(block));
	filled_bytes += range->filled * PAGE_BYTES;
	taken_bytes += length;
	taken_blocks++;
	increment_counter(&counters_get()->blocks_total);
	set_counters();
	unlock_pools();
	errno = saved;
	if (use == LARGE_ZERO)
		range_zero(range, (uintptr_t)memory, (uintptr_t)memory + length, taken);
	return memory;
}

/* Finds a block, or aborts. Caller holds the lock. */
static struct extent *find_block(struct pool *pool, const void *memory)
{
	struct extent *block = pool ? extents_at(&pool->extents, memory) : NULL;

	if (!block)
		abort_wrong_pointer();
	return block;
}

void large_free(void *memory)
{
	struct extent *block, *merged;
	int saved = errno;
	struct range *range;
	struct pool *pool;

	lock_pools();
	age_blocks();
	pool = find_pool(memory);
	block = find_block(pool, memory);
	range = find_range(pool, begin_of(block));
	taken_bytes -= block->length;
	taken_blocks--;
	range_give(range, begin_of(block), end_of(block), tick);
	merged = block->before && block->before->is_free ? block->before : block;
	extents_give(&pool->extents, block);
	if (count_pooled() > keep_bytes)
		release_block(range, merged, 0, count_pooled() - keep_bytes);
	set_counters();
	unlock_pools();
	errno = saved;
}

size_t large_usable_size(void *memory)
{
	struct extent *block;
	size_t length;

	lock_pools();
	block = find_block(find_pool(memory), memory);
	length = block->length;
	unlock_pools();
	return length;
}

bool large_resize(void *memory, size_t bytes)
{
	size_t length = extent_length(bytes), was;
	struct extent *block;
	struct range *range;
	struct pool *pool;
	int saved = errno;
	bool fits;

	if (bytes > EXTENT_BYTES_MAX / 4)
		return false;
	lock_pools();
	age_blocks();
	pool = find_pool(memory);
	block = find_block(pool, memory);
	range = find_range(pool, begin_of(block));
	was = block->length;
	fits = extents_resize(&pool->extents, block, length);
	if (fits) {
		filled_bytes -= range->filled * PAGE_BYTES;
		if (length > was)
			range_take(range, begin_of(block) + was, end_of(block));
		else if (length < was)
			range_give(range, end_of(block), begin_of(block) + was, tick);
		filled_bytes += range->filled * PAGE_BYTES;
		taken_bytes += length - was;
		if (length < was && count_pooled() > keep_bytes)
			release_block(range, block->after, 0, count_pooled() - keep_bytes);
		set_counters();
	}
	unlock_pools();
	errno = saved;
	return fits;
}

bool large_trim(void)
{
	int saved = errno;
	bool any;

	lock_pools();
	any = release_pages(0);
	set_counters();
	unlock_pools();
	errno = saved;
	return any;
}

void large_start(const struct malloc_settings *settings, struct reader *reader)
{
	struct sysinfo machine;
	void *owners;

	if (!__register_atfork)
		reader_fail(reader, "%s is '1', but malloc mode needs glibc", KNOB(MALLOC));
	place_choose(&place, settings, reader);
	if (*reader->error)
		return;
	keep_bytes = settings->keep_bytes;
	if (keep_bytes == KEEP_HALF && !sysinfo(&machine))
		keep_bytes = (uint64_t)machine.totalram * machine.mem_unit / 2;
	if (!settings->decay_ms)
		keep_bytes = 0;
	else if (settings->decay_ms != DECAY_NEVER)
		tick_ms = (settings->decay_ms + DECAY_TICKS - 1) / DECAY_TICKS;
	owners = mmap(NULL, LARGE_CHUNKS, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (owners == MAP_FAILED ||
	    __register_atfork(before_fork, after_fork_in_parent, after_fork_in_child, NULL)) {
		reader_fail(reader, "%s is '1', but there is no memory for its table",
			    KNOB(MALLOC));
		return;
	}
	large_gate.owners = owners;
	age_blocks();
	large_gate.min_bytes = settings->min_bytes;
}
