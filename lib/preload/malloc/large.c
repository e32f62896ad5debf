/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Large blocks for malloc mode: extents in ranges of private memory.
 *
 * One lock for all pools is enough: a thread that allocates a large block then touches all of it,
 * which takes a thousand times as long as the allocation. A thread that forks holds the lock during
 * fork(), so that the child gets consistent bookkeeping. Handlers of pthread_atfork() may allocate
 * memory, so the forking thread does not take the lock again during fork().
 *
 * Freed pages stay resident for the next block, but the kernel may take them at any time
 * (MADV_FREE). So freed pages never cause the program to run out of memory. The pools keep at most
 * a little more memory than the blocks needed at their peak. A call that allocates or frees a large
 * block returns to the kernel the memory that has been free for a while. The preload has no thread
 * for this work, because a program does not expect threads that it did not start.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "preload/malloc/counters.h"
#include "preload/malloc/large.h"
#include "preload/malloc/own.h"
#include "preload/malloc/range.h"

/*
 * glibc's pthread_atfork() calls this function. A library that calls pthread_atfork() contains a
 * copy of pthread_atfork(), and so cannot load if the C library lacks __register_atfork(). With
 * this weak reference, the preload also loads with such C libraries.
 */
int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
		      void *library) __attribute__((weak));

#define NODES_MAX	64
/* Because of gaps between blocks, the pools keep up to 1/SPARE_PART more than the blocks' peak. */
#define SPARE_PART	16
/*
 * A tick is 1/DECAY_TICKS of the decay time. Free memory is returned after DECAY_TICKS to
 * DECAY_TICKS + 1 ticks.
 */
#define DECAY_TICKS	8

_Static_assert(CHUNK_BYTES == 1UL << LARGE_CHUNK_SHIFT, "CHUNK_BYTES must match LARGE_CHUNK_SHIFT");

struct pool {
	struct extents extents;
	struct range *ranges;
	unsigned int node;
};

struct large_gate large_gate = { .min_bytes = SIZE_MAX };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Number of nested fork() calls: a signal handler may call fork() while its thread is in fork(). */
static __thread volatile sig_atomic_t forking;
/*
 * Set while this thread takes or holds the lock: a fork() in a signal handler must not take the
 * lock again.
 */
static __thread volatile sig_atomic_t inside;
/*
 * Set in a child that was forked while @inside was set. Such a child uses its parent's counters
 * until it next takes the lock.
 */
static volatile sig_atomic_t counts_as_parent;

static struct pool *pools[NODES_MAX];
static struct place place;
static bool is_kept;		/* freed pages stay until the decay time is over */
static uint64_t tick_ms;
static uint64_t tick;		/* current time, in ticks */

static uint64_t range_bytes, taken_bytes, taken_bytes_peak, filled_bytes_checked, taken_blocks;

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

/* Aborts without the lock, because a handler of SIGABRT may allocate memory. */
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
 * Returns an upper bound of the bytes that are free and were not returned to the kernel. The exact
 * number may be smaller, because the program may never have touched a block's pages.
 */
static uint64_t count_pooled(void)
{
	return range_filled_bytes > taken_bytes ? range_filled_bytes - taken_bytes : 0;
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

static struct pool *find_pool_of_caller(void)
{
	unsigned int node = place_of_caller(&place) % NODES_MAX;
	struct pool *pool = pools[node];

	if (pool)
		return pool;
	pool = own_calloc(1, sizeof(*pool));
	if (!pool || extents_init(&pool->extents))
		return NULL;
	pool->node = node;
	pools[node] = pool;
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
 * Adds a range. The length of new ranges grows with the pool, to keep the number of ranges small.
 * If a long range cannot be mapped, adds one that is just long enough for @length.
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
	set_owners(range, (uint8_t)(1 + pool->node));
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

/*
 * Gives back to the kernel the pages that have been free for @age ticks, up to @most bytes, and
 * unmaps empty ranges. Returns true if it gave back any pages.
 */
static bool release_pages(uint64_t age, size_t most)
{
	struct range **link, *range;
	struct extent *block;
	size_t released = 0;
	unsigned int i;

	for (i = 0; i < NODES_MAX; i++) {
		for (link = pools[i] ? &pools[i]->ranges : NULL; link && *link;) {
			range = *link;
			for (block = range->first; block && released < most; block = block->after)
				if (block->is_free)
					released += range_release(range, begin_of(block),
								  end_of(block), tick, age,
								  most - released);
			if (extents_range_is_free(range->first) && !range->filled)
				drop_range(pools[i], link);
			else
				link = &range->next;
		}
	}
	return released;
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
		release_pages(passed > DECAY_TICKS ? 0 : DECAY_TICKS, SIZE_MAX);
}

static struct extent *take_block(struct pool *pool, size_t length, size_t align)
{
	struct extent *block = NULL;

	if (extents_take(&pool->extents, length, align, &block) == -ENOSPC &&
	    grow_pool(pool, length))
		extents_take(&pool->extents, length, align, &block);
	return block;
}

/*
 * Counts a block that was taken, or the change of a block's length. Gives back free pages if the
 * pools have more pages than the blocks needed at their peak. The next check is made only after the
 * pools have got more pages, because a search finds nothing while blocks use the excess pages.
 */
static void count_taken(size_t length)
{
	uint64_t spare, most;

	taken_bytes += length;
	if (taken_bytes > taken_bytes_peak)
		taken_bytes_peak = taken_bytes;
	if (range_filled_bytes <= filled_bytes_checked)
		return;
	spare = taken_bytes_peak / SPARE_PART;
	most = taken_bytes_peak + spare;
	if (range_filled_bytes > most)
		release_pages(0, range_filled_bytes - most);
	filled_bytes_checked = range_filled_bytes + spare;
}

/*
 * Handles memory that was just freed, from @from to @to in the free @block: lets the kernel take
 * the pages, or returns them at once.
 */
static void give_part(struct range *range, const struct extent *block, uintptr_t from, uintptr_t to)
{
	range_give(range, from, to, tick);
	/* Include pages that were free in part before, and are now entirely free. */
	from &= ~(PAGE_BYTES - 1);
	from = from > begin_of(block) ? from : begin_of(block);
	to = round_up(to, PAGE_BYTES);
	to = to < end_of(block) ? to : end_of(block);
	if (is_kept)
		range_offer(range, from, to);
	else
		range_release(range, from, to, tick, 0, SIZE_MAX);
}

void *large_alloc(size_t bytes, size_t align)
{
	size_t length = extent_length(bytes);
	struct extent *block = NULL;
	struct pool *pool;
	int saved = errno;
	void *memory;

	if (bytes > EXTENT_BYTES_MAX / 4 || align > EXTENT_ALIGN_MAX)
		return NULL;
	if (align < EXTENT_UNIT)
		align = EXTENT_UNIT;
	lock_pools();
	age_blocks();
	pool = find_pool_of_caller();
	/* All free memory may be in other pools. Return it to the kernel, and try again. */
	if (pool && !(block = take_block(pool, length, align)) && release_pages(0, SIZE_MAX))
		block = take_block(pool, length, align);
	if (!block) {
		increment_counter(&counters_get()->refused_total);
		unlock_pools();
		errno = saved;
		return NULL;
	}
	memory = block->address;
	range_take(find_range(pool, begin_of(block)), begin_of(block), end_of(block));
	count_taken(length);
	taken_blocks++;
	increment_counter(&counters_get()->blocks_total);
	set_counters();
	unlock_pools();
	errno = saved;
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
	uintptr_t from, to;
	int saved = errno;
	struct pool *pool;

	lock_pools();
	age_blocks();
	pool = find_pool(memory);
	block = find_block(pool, memory);
	from = begin_of(block);
	to = end_of(block);
	taken_bytes -= block->length;
	taken_blocks--;
	merged = block->before && block->before->is_free ? block->before : block;
	extents_give(&pool->extents, block);
	give_part(find_range(pool, from), merged, from, to);
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
		if (length > was)
			range_take(range, begin_of(block) + was, end_of(block));
		count_taken(length - was);
		if (length < was)
			give_part(range, block->after, end_of(block), begin_of(block) + was);
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
	any = release_pages(0, SIZE_MAX);
	set_counters();
	unlock_pools();
	errno = saved;
	return any;
}

void large_start(const struct malloc_settings *settings, struct reader *reader)
{
	void *owners;

	if (!__register_atfork)
		reader_fail(reader, "%s is '1', but malloc mode needs glibc", KNOB(MALLOC));
	place_choose(&place, settings, reader);
	if (*reader->error)
		return;
	is_kept = settings->decay_ms;
	if (is_kept && settings->decay_ms != DECAY_NEVER)
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
