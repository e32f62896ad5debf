/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Determines how much memory a store may use: its budget, or less if it cannot get that much. A
 * limit that the store shares with other users may be used up or lowered, or the machine may have
 * no more memory. The store then uses a smaller budget: the memory that it already has, or the part
 * of this memory that the limit still allows. It spills the blocks that do not fit.
 *
 * Other users may free memory later. The store tries to get this memory in the background. It tries
 * at the beginning of each round (a rise and fall of the bytes of all blocks), if the round can use
 * more memory. The store also tries to get more memory before a call fails for lack of memory.
 */
#include <errno.h>
#include <stdio.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "store/store.h"

static int fail_small_budget(uint64_t bytes, unsigned int least, uint64_t page_bytes)
{
	int error = fail(EINVAL, "%s of %s is too small: it must be at least %s of %s; raise it",
			 KNOB(BUDGET), BYTES_TEXT(bytes), least > 1 ? "two pages" : "one page",
			 BYTES_TEXT(page_bytes));

	if (page_bytes > BASE_PAGE_BYTES)
		fail_more(", or request smaller pages with %s", KNOB(PAGES));
	return error;
}

int store_check_budget(const struct actmem_store *store, bool spills, uint64_t *bytes)
{
	/* A store that spills needs two pages: one block is in use while another is transferred. */
	unsigned int least = spills ? 2 : 1;

	if (*bytes < least * store->page_bytes)
		return fail_small_budget(*bytes, least, store->page_bytes);
	*bytes = *bytes / store->page_bytes * store->page_bytes;
	return 0;
}

/* Returns the budget that the program and the ceiling allow. store->budget can be lower. */
static uint64_t limit_of(const struct actmem_store *store)
{
	return store->asked < store->ceiling ? store->asked : store->ceiling;
}

bool store_lift_budget(struct actmem_store *store)
{
	bool was_less = store->budget < limit_of(store);

	store->budget = limit_of(store);
	heap_lift_limit(store->heap, store->budget);
	return was_less;
}

/*
 * Records the first refusal of memory. The background thread adds the reason to the store's
 * description.
 */
static void note_refusal(struct actmem_store *store)
{
	if (store->refused_at || store->budget >= store->asked)
		return;
	store->refused_at = store->budget;
	pthread_cond_signal(&store->background);
}

bool store_make_do(struct actmem_store *store, int error)
{
	uint64_t held;

	if (!store->queue || !is_out_of_memory(error))
		return false;
	held = heap_stop_growing(store->heap);
	if (!held) {
		store_lift_budget(store);
		return false;
	}
	snprintf(store->refusal, sizeof(store->refusal), "%s", fail_words());
	store->budget = held < limit_of(store) ? held : limit_of(store);
	note_refusal(store);
	return true;
}

/* Releases the lock. Another thread may change the budget or the heap's limit meanwhile. */
void store_keep_to_budget(struct actmem_store *store)
{
	uint64_t raises = store->limit_raises, budget;
	bool is_beyond;

	store->is_to_shorten = false;
	if (!store->is_beyond)
		return;
	do {
		budget = store->budget;
		pthread_mutex_unlock(&store->lock);
		is_beyond = heap_lower_limit(store->heap, budget) > budget;
		pthread_mutex_lock(&store->lock);
	} while (budget != store->budget);
	if (raises != store->limit_raises)
		return;
	if (link_is_alone(&store->waiters))
		store->is_beyond = is_beyond;
	store->is_lowered &= is_beyond;
	store->is_scattered = store->is_lowered && !store_is_over(store, 0);
}

/* Closes free regions beyond the new budget. Other regions are closed when they become free. */
static void keep_to_new_budget(struct actmem_store *store)
{
	store->is_beyond = true;
	store->is_lowered = true;
	store_keep_to_budget(store);
	store_advance(store);
	/* store_advance() may have dropped the last blocks of a region. */
	store_keep_to_budget(store);
	store_kick(store);
}

static void set_budget(struct actmem_store *store, uint64_t bytes)
{
	bool is_refused = store->budget < store->asked && store->budget < bytes;

	store->asked = bytes;
	if (!is_refused || store->budget > limit_of(store))
		store->budget = limit_of(store);
	keep_to_new_budget(store);
}

/* Returns the least memory with which the store can transfer a block while another is in use. */
static uint64_t least_bytes(const struct actmem_store *store)
{
	uint64_t longest = store->pace.longest > store->page_bytes ? store->pace.longest :
			   store->page_bytes;

	return 2 * round_up(longest, store->page_bytes);
}

void store_set_ceiling(struct actmem_store *store, uint64_t bytes, const char *why)
{
	store->ceiling = bytes > least_bytes(store) ? bytes : least_bytes(store);
	if (limit_of(store) >= store->budget)
		return;
	snprintf(store->refusal, sizeof(store->refusal), "%s", why);
	store->budget = limit_of(store);
	note_refusal(store);
	keep_to_new_budget(store);
}

bool store_exceed_ceiling(struct actmem_store *store)
{
	bool was_less = store->ceiling < store->asked;

	store->ceiling = UINT64_MAX;
	return was_less && store_lift_budget(store);
}

int actmem_store_set_budget(struct actmem_store *store, uint64_t bytes)
{
	int error = store_check(store, "actmem_store_set_budget");

	if (!error)
		error = store_check_budget(store, store->queue, &bytes);
	if (error)
		return error;
	store_enter(store);
	set_budget(store, bytes);
	store_leave(store);
	return 0;
}

int actmem_store_set_spill_limit(struct actmem_store *store, uint64_t bytes)
{
	int error = store_check(store, "actmem_store_set_spill_limit");

	if (error)
		return error;
	if (!store->queue)
		return fail(EINVAL, "%s needs %s: without it, nothing is spilled", KNOB(SPILL_LIMIT),
			    KNOB(SPILL));
	store_enter(store);
	spillfile_set_limit(&store->files, bytes);
	pthread_cond_signal(&store->background);
	store_kick(store);
	store_leave(store);
	return 0;
}

void store_want_budget(struct actmem_store *store)
{
	if (store->budget == limit_of(store) || schedule_peak(&store->schedule) <= store->budget)
		return;
	store->is_to_regain = true;
	pthread_cond_signal(&store->background);
}

static void tell_refusal(struct actmem_store *store)
{
	char what[BYTES_TEXT_MAX * 2 + 64];

	store->is_refusal_told = true;
	snprintf(what, sizeof(what), "; instead of its budget of %s, it got only %s: ",
		 BYTES_TEXT(store->asked), BYTES_TEXT(store->refused_at));
	store_describe_more(store, what, store->refusal);
}

/*
 * Grows the heap until it can hold the highest peak of the last rounds, or until the limit is
 * reached. Releases the lock meanwhile.
 */
static void regain(struct actmem_store *store)
{
	uint64_t peak = schedule_peak(&store->schedule), used = store->sums[SUM_MEMORY].length;
	uint64_t limit = limit_of(store), wanted = peak < limit ? peak : limit;
	uint64_t length = store->pace.longest;
	int error;

	store->is_to_regain = false;
	if (wanted <= used || !length)
		return;
	heap_lift_limit(store->heap, limit);
	pthread_mutex_unlock(&store->lock);
	error = heap_grow_ahead(store->heap, length, store->memory_align, wanted - used);
	pthread_mutex_lock(&store->lock);
	if (!error || !store_make_do(store, error))
		store_lift_budget(store);
	/*
	 * If the limit was lowered while the lock was released, no regions were closed, because the
	 * budget was even lower than the new limit. Close regions beyond the new limit now.
	 */
	if (limit_of(store) < limit)
		keep_to_new_budget(store);
	store_advance(store);
}

static void keep_to_budget_further(struct actmem_store *store)
{
	store_keep_to_budget(store);
	if (store->is_scattered)
		store_advance(store);
}

bool store_see_to_budget(struct actmem_store *store)
{
	if (store->refused_at && !store->is_refusal_told)
		tell_refusal(store);
	else if (store->is_to_regain)
		regain(store);
	else if (store->is_to_shorten)
		keep_to_budget_further(store);
	else
		return false;
	return true;
}
