/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The blocks of one heap that one thread has freed and keeps at hand, by their
 * exact length: activations come in few lengths, the same at each step. Only
 * lengths that the thread has asked for are kept, so that one which frees what
 * others take gives it back to them at once.
 *
 * The thread says when it is inside, another one that wants back what it keeps
 * says that it is recalled. Each says so before it looks what the other says
 * (fence.h): the thread then stays out and goes to the heap, where it looks into its
 * cache again; the other one waits for the few instructions until the thread is outside.
 * Several others take turns by the heap's lock; the thread needs nothing else if it has
 * that.
 */
#ifndef LIB_HEAP_CACHE_H
#define LIB_HEAP_CACHE_H

#include "base/base.h"
#include "heap/fence.h"

#define CACHE_SETS	16
#define CACHE_WAYS	4
#define CACHE_LINE	64

struct actmem_heap;

/* Written by one thread, or under one lock; read by any. Sums may be negative. */
struct tally {
	_Atomic uint64_t taken;		/* blocks, ever */
	_Atomic uint64_t given;
	_Atomic uint64_t block_bytes;
	_Atomic uint64_t misses;	/* blocks taken that the thread did not have */
};

struct cache_set {
	uint64_t length[CACHE_WAYS];	/* 0: the way is not used */
	struct block *first[CACHE_WAYS];/* linked by next */
};

struct cache {
	char before[CACHE_LINE];	/* apart from what other threads write */
	atomic_bool inside;		/* the thread is at what follows */
	atomic_bool recalled;		/* by another thread, which is going to be */
	_Atomic uint64_t bytes;		/* of all that is kept */
	unsigned int turn;		/* the way that has to make room next */
	uint64_t judged;		/* tally.taken when misses were, the thread's own */
	int64_t rise;			/* most that block_bytes rose since then */
	struct tally tally;		/* of what the thread took and gave, its own */
	struct tally published;		/* how much of it am->counters have, its own */
	uint64_t tick;			/* of CLOCK_MONOTONIC_COARSE when they were told, likewise */
	struct actmem_heap *_Atomic heap;	/* NULL: there is none any more */
	struct cache *of_thread;	/* next; the thread's own */
	struct cache *next, *previous;	/* of the same heap, under its lock */
	struct cache_set sets[CACHE_SETS];
	char behind[CACHE_LINE];
};

static inline uint64_t tally_read(const _Atomic uint64_t *sum)
{
	return atomic_load_explicit(sum, memory_order_relaxed);
}

static inline void tally_add(_Atomic uint64_t *sum, uint64_t amount)
{
	atomic_store_explicit(sum, tally_read(sum) + amount, memory_order_relaxed);
}

static inline void cache_leave(struct cache *cache)
{
	atomic_store_explicit(&cache->inside, false, memory_order_release);
}

/* False: another thread has the cache, and this one has to do without. */
static inline bool cache_enter(struct cache *cache)
{
	fence_write_often(&cache->inside);
	if (LIKELY(!atomic_load_explicit(&cache->recalled, memory_order_seq_cst)))
		return true;
	cache_leave(cache);
	return false;
}

static inline struct cache_set *cache_set_of(struct cache *cache, uint64_t length)
{
	return &cache->sets[length / BLOCK_UNIT * 0x9e3779b97f4a7c15ULL >> 60];
}

_Static_assert(CACHE_SETS == 1 << (64 - 60), "a hash's 4 high bits say which set");

/* A kept block of exactly this length, so aligned; NULL: none that is on top. */
static inline struct block *cache_take(struct cache *cache, uint64_t length, uint64_t align)
{
	struct cache_set *set = cache_set_of(cache, length);
	struct block *block = NULL;
	unsigned int way;

	if (!cache_enter(cache))
		return NULL;
	for (way = 0; way < CACHE_WAYS; way++) {
		if (set->length[way] != length)
			continue;
		block = set->first[way];
		if (block && (uintptr_t)block->address & (align - 1))
			block = NULL;
		if (block) {
			set->first[way] = block->next;
			tally_add(&cache->bytes, -length);
		}
		break;
	}
	cache_leave(cache);
	return block;
}

/* Whether it is kept now: the length is wanted, and not more than @limit then. */
static inline bool cache_keep(struct cache *cache, struct block *block, uint64_t limit)
{
	uint64_t length = block->length;
	struct cache_set *set = cache_set_of(cache, length);
	bool kept = false;
	unsigned int way;

	if (!cache_enter(cache))
		return false;
	for (way = 0; way < CACHE_WAYS; way++) {
		if (set->length[way] != length)
			continue;
		kept = tally_read(&cache->bytes) + length <= limit;
		if (kept) {
			block->next = set->first[way];
			set->first[way] = block;
			tally_add(&cache->bytes, length);
		}
		break;
	}
	cache_leave(cache);
	return kept;
}

/* NULL: no memory. */
struct cache *cache_create(struct actmem_heap *heap);
void cache_destroy(struct cache *cache);

/*
 * From now on blocks of this length are kept. Returns those that have to make
 * room for them, linked by next. By the cache's thread, under the heap's lock.
 */
struct block *cache_expect(struct cache *cache, uint64_t length);

/*
 * All that is kept, linked by next. By the cache's thread or one that recalled
 * it, under the heap's lock.
 */
struct block *cache_drain(struct cache *cache);

/*
 * At most @most kept blocks of exactly this length, linked by next; and one of them is
 * so aligned, which is the first: else none. By one that recalled the cache, under the
 * heap's lock.
 */
struct block *cache_pass_on(struct cache *cache, uint64_t length, uint64_t align,
			    unsigned int most);

/* Keeps them, of one length, after cache_expect(). By the cache's thread, likewise. */
void cache_adopt(struct cache *cache, struct block *list);

/*
 * Another thread, under the heap's lock: recalls the cache, waits after
 * fence_seldom() until its thread is outside, and lets it in again at last.
 */
void cache_recall(struct cache *cache);
void cache_await(struct cache *cache);
void cache_release(struct cache *cache);

#endif /* LIB_HEAP_CACHE_H */
