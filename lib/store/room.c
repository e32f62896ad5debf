/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Gets memory for blocks, in the order in which threads asked for it. Whenever the memory or the
 * blocks of the store change, the first waiter tries again: it takes free memory or grows the heap.
 * If there is no free memory and the heap cannot grow, the waiter drops the memory of blocks that
 * are also in a file. If there are no such blocks, the waiter waits for spills.
 */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"
#include "store/store.h"

/* The caller must wait. */
#define WAIT		1
/* Something changed: the caller should try again. */
#define LOOK_AGAIN	2

void waiter_init(struct waiter *waiter, uint64_t timeout_ns)
{
	/*
	 * waiter->words need not be cleared: an error sets it, and nothing reads it before an
	 * error.
	 */
	link_init(&waiter->link);
	waiter->thread = thread_number();
	waiter->is_stalled = false;
	waiter->until = timeout_ns == ACTMEM_WAIT_FOREVER ? 0 : clock_after(timeout_ns);
	waiter->is_refused = false;
	waiter->spill_error = 0;
	waiter->fill_error = 0;
	pthread_cond_init(&waiter->wake, NULL);
}

void waiter_destroy(struct waiter *waiter)
{
	pthread_cond_destroy(&waiter->wake);
}

bool waiter_is_late(const struct waiter *waiter)
{
	return waiter->until && clock_ns() >= waiter->until;
}

void store_kick(struct actmem_store *store)
{
	if (!link_is_alone(&store->waiters))
		pthread_cond_signal(&link_item(store->waiters.next, struct waiter, link)->wake);
}

void store_sleep(struct actmem_store *store, struct waiter *waiter, struct store_block *block,
		 enum wait_kind kind)
{
	struct timespec until = clock_time(waiter->until);
	struct published_wait *wait;

	if (!waiter->is_stalled) {
		waiter->is_stalled = true;
		waiter->since = clock_ns();
		store_tell(store, ACTMEM_STORE_STALL_BEGIN, block, 0);
	}
	wait = wait_begin(store->am->waits, kind, waiter->since, block->bytes, KEY_TEXT(store, block->key));
	if (waiter->until)
		pthread_cond_clockwait(&waiter->wake, &store->lock, CLOCK_MONOTONIC, &until);
	else
		pthread_cond_wait(&waiter->wake, &store->lock);
	wait_end(store->am->waits, wait);
}

void store_end_stall(struct actmem_store *store, struct waiter *waiter,
		     struct store_block *block, bool is_put)
{
	uint64_t *total = is_put ? &store->stats.put_stall_ns_total :
			  &store->stats.take_stall_ns_total;

	if (!waiter->is_stalled)
		return;
	waiter->is_stalled = false;
	store_count(store, total, clock_ns() - waiter->since);
	store_tell(store, ACTMEM_STORE_STALL_END, block, 0);
}

/*
 * Grows the heap without the lock. Returns 0, LOOK_AGAIN, or a negative errno with an error
 * message.
 */
static int grow(struct actmem_store *store, struct waiter *waiter, uint64_t length, void **memory)
{
	bool is_full = false;
	int error;

	pthread_mutex_unlock(&store->lock);
	error = heap_alloc(store->heap, length, store->memory_align, memory, &is_full);
	pthread_mutex_lock(&store->lock);
	/* Another thread took the memory, but may have freed it since. */
	if (error && is_full)
		return LOOK_AGAIN;
	if (!error || !store_make_do(store, error))
		return error;
	waiter->is_refused = true;
	return LOOK_AGAIN;
}

static bool has_waiter(const struct link *list, uint64_t thread)
{
	const struct waiter *waiter;
	const struct link *link;

	for (link = list->next; link != list; link = link->next) {
		waiter = link_item(link, struct waiter, link);
		if (waiter->thread == thread && !waiter->until)
			return true;
	}
	return false;
}

/*
 * Returns true if @thread can still free its blocks. The calling thread is about to wait, so it
 * cannot free blocks. A thread that already waits without a timeout cannot free blocks, either.
 */
static bool may_free(const struct actmem_store *store, uint64_t thread)
{
	return thread != thread_number() && !has_waiter(&store->waiters, thread) &&
	       !has_waiter(&store->claim_waiters, thread);
}

/*
 * Returns true if the users of this block can free its memory. In a store that does not spill, the
 * user of a reserved block cannot: after the commit, the block keeps its memory.
 */
static bool gives_back(const struct actmem_store *store, const struct store_block *block)
{
	const struct holder *holder = block->holders;

	if (!store->queue && (block->user == USER_FILLS || block->user == USER_COMMITS))
		return false;
	if (store->flags & ACTMEM_STORE_HANDED_ON)
		return true;
	if (!holder)
		return may_free(store, block->thread);
	while (holder && may_free(store, holder->thread))
		holder = holder->next;
	return !holder;
}

/* Returns true if other threads can still free memory while the calling thread waits. */
static bool memory_comes_back(const struct actmem_store *store)
{
	const struct store_block *block;
	size_t i;

	for (i = 0; i < store->bucket_count; i++)
		for (block = store->buckets[i]; block; block = block->chain)
			if (block->memory && block->user && gives_back(store, block))
				return true;
	return false;
}

/* Handles a failed spill while no transfer is under way: fails, or raises the heap's limit. */
static int do_without_spill(struct actmem_store *store, struct waiter *waiter, uint64_t length)
{
	if (waiter->is_refused)
		return fail(-waiter->spill_error, "%s; no more memory can be allocated beyond %s: %s",
			    waiter->words, BYTES_TEXT(store->budget), store->refusal);
	if (!(store->flags & ACTMEM_STORE_ALLOW_MEMORY))
		return fail(-waiter->spill_error, "%s", waiter->words);
	store->is_beyond = true;
	store->is_lowered = false;
	store->limit_raises++;
	heap_raise_limit(store->heap, length);
	return LOOK_AGAIN;
}

/* Fails: no transfer and no other thread can free memory. */
static int fail_used_up(const struct actmem_store *store, const struct waiter *waiter,
			uint64_t length)
{
	const char *by = "blocks that are reserved or held by this thread, or by other threads that wait for memory";

	if (!waiter->is_refused)
		return fail(EDEADLK, "%s are needed, but %s of %s is used up by %s",
			    BYTES_TEXT(length), KNOB(BUDGET), BYTES_TEXT(store->budget), by);
	if (!store->sums[SUM_MEMORY].blocks)
		by = "free regions that are too short";
	return fail(ENOMEM, "%s are needed, but only %s of %s of %s could be allocated, and are used up by %s; allocating more failed: %s",
		    BYTES_TEXT(length), BYTES_TEXT(store->budget), KNOB(BUDGET),
		    BYTES_TEXT(store->asked), by, store->refusal);
}

/*
 * Starts to free memory. Returns LOOK_AGAIN if memory may be free now, WAIT if memory will be free
 * later, or a negative errno with an error message.
 */
static int make_room(struct actmem_store *store, struct waiter *waiter, uint64_t length)
{
	const char *name = store->am->heap_names.path;

	/*
	 * Named regions stay open even if they are empty, so a longer region cannot use their
	 * memory.
	 */
	if (name && !waiter->is_refused && !store->sums[SUM_MEMORY].blocks)
		return fail(ENOMEM, "%s are needed, but each of the store's regions %s.* is free but too short; together they use up %s of %s; remove them and raise %s, or raise %s",
			    BYTES_TEXT(length), name, KNOB(BUDGET), BYTES_TEXT(store->budget),
			    KNOB(HEAP_GROW), KNOB(BUDGET));
	if (!store->queue && store->flags & ACTMEM_STORE_HANDED_ON && memory_comes_back(store))
		return WAIT;
	if (!store->queue)
		return fail(ENOMEM, "%s are needed, but %s of %s is used up; raise it or set %s",
			    BYTES_TEXT(length), KNOB(BUDGET), BYTES_TEXT(store->budget),
			    KNOB(SPILL));
	while (store->dirty.first && !waiter->spill_error &&
	       store->sums[SUM_SPILLING].length < length)
		store_spill(store, link_item(store->dirty.first, struct store_block, place));
	if (store->under_way || store->prepared)
		return WAIT;
	if (waiter->spill_error)
		return do_without_spill(store, waiter, length);
	if (memory_comes_back(store))
		return WAIT;
	return fail_used_up(store, waiter, length);
}

int store_take_room(struct actmem_store *store, uint64_t length, void **memory)
{
	return store_is_over(store, length) ? -ENOSPC :
	       heap_take(store->heap, length, store->memory_align, memory);
}

/*
 * Returns true if the next block to drop was read ahead, and waiting for a spill is better than
 * dropping this block and reading it twice. Waiting is better if enough spills are under way, or if
 * the store can spill a block that will be taken later than this one.
 */
static bool is_spill_better(const struct actmem_store *store, const struct waiter *waiter,
			    uint64_t length)
{
	const struct order_place *clean = store->clean.first, *dirty = store->dirty.first;

	if (!clean || !link_item(clean, struct store_block, place)->is_ahead || waiter->spill_error)
		return false;
	return store->sums[SUM_SPILLING].length >= length ||
	       (dirty && want_is_sooner(&clean->want, &dirty->want));
}

static int look_for(struct actmem_store *store, struct waiter *waiter, uint64_t length,
		    void **memory)
{
	int error;

	do {
		error = store_take_room(store, length, memory);
		if (error != -ENOSPC)
			break;
		if (!store_is_over(store, length) && heap_may_grow(store->heap, length))
			error = grow(store, waiter, length, memory);
		else if (!is_spill_better(store, waiter, length) && store_drop_clean(store, NULL))
			error = LOOK_AGAIN;
		else
			error = make_room(store, waiter, length);
		/* Memory that was refused before may be available now. */
		if (error < 0 && !waiter->is_refused &&
		    (store_lift_budget(store) || store_exceed_ceiling(store)))
			error = LOOK_AGAIN;
	} while (error == LOOK_AGAIN);
	return error;
}

static int fail_late(const struct actmem_store *store, const struct store_block *block)
{
	return fail(ETIMEDOUT, "%s of %s has no memory yet: %s of %s is used up, %s are being spilled, and %u threads wait",
		    KEY_TEXT(store, block->key), BYTES_TEXT(block->bytes), KNOB(BUDGET), BYTES_TEXT(store->budget),
		    BYTES_TEXT(store->sums[SUM_SPILLING].length), store->waiting);
}

int store_room(struct actmem_store *store, struct waiter *waiter, struct store_block *block,
	       void **memory)
{
	int error = WAIT;

	link_append(&store->waiters, &waiter->link);
	/* This thread frees nothing while it waits, so the first waiter for memory may fail. */
	store_kick(store);
	for (;;) {
		if (store->waiters.next == &waiter->link)
			error = look_for(store, waiter, block->length, memory);
		if (error == WAIT && waiter_is_late(waiter))
			error = fail_late(store, block);
		if (error != WAIT)
			break;
		store_sleep(store, waiter, block, WAIT_MEMORY);
	}
	link_remove(&waiter->link);
	store_kick(store);
	return error;
}

int actmem_store_grow(struct actmem_store *store, uint64_t length, uint64_t free_bytes)
{
	int error = store_check(store, "actmem_store_grow");

	if (error)
		return error;
	if (!length || length > EXTENT_BYTES_MAX)
		return fail(EINVAL, "actmem_store_grow: length is %llu, but must be 1 to %llu",
			    (unsigned long long)length, (unsigned long long)EXTENT_BYTES_MAX);
	store_enter(store);
	store->waiting++;
	pthread_mutex_unlock(&store->lock);
	error = heap_grow_ahead(store->heap, round_up(length, store->unit), store->memory_align,
				free_bytes);
	pthread_mutex_lock(&store->lock);
	if (error && store_make_do(store, error))
		error = 0;
	store->waiting--;
	store_kick(store);
	store_leave(store);
	return error;
}
