/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Compares the order in which blocks are taken with the expected order. If they differ, the store
 * guesses which blocks will be taken next, and reads these blocks before all others that are not
 * urgent.
 */
#include "store/store.h"

/*
 * A take counts as expected even if it is this many takes early or late, because threads overtake
 * each other.
 */
#define FORESEEN_WITHIN	8
/* Guess again after 1/RENEWED_PART of the guessed blocks of a run were taken. */
#define RENEWED_PART	16

static bool is_when_foreseen(const struct actmem_store *store, const struct store_block *block)
{
	uint64_t at = block->place.want.at, now = store->schedule.clock + 1;

	if (at == WANTED_UNKNOWN)
		return block->puts.next == &store->puts;
	return (at > now ? at - now : now - at) <= FORESEEN_WITHIN;
}

static enum take_kind kind_of(const struct actmem_store *store, const struct store_block *block)
{
	if (!block->memory && store->filed.first != &block->place)
		return TAKE_MISSED;
	return is_when_foreseen(store, block) ? TAKE_FORESEEN : TAKE_BY_CHANCE;
}

static struct store_block *neighbour(struct actmem_store *store, const struct store_block *block,
				     bool is_up)
{
	struct link *link = is_up ? block->puts.next : block->puts.previous;

	return link == &store->puts ? NULL : link_item(link, struct store_block, puts);
}

static uint64_t put_of(const struct store_block *block)
{
	return block ? block->foreseen.put : 0;
}

static bool is_urgent(const struct store_block *block)
{
	return !block->place.want.at && link_is_alone(&block->guessed);
}

/*
 * Ends the guesses up to number @last. A block that was guessed again has a later number, and stays
 * guessed.
 */
static void end_guesses(struct actmem_store *store, uint64_t last)
{
	struct store_block *block;

	while (!link_is_alone(&store->guessed)) {
		block = link_item(store->guessed.next, struct store_block, guessed);
		if (block->place.want.put > last)
			break;
		store_want(store, block, block->foreseen);
	}
}

/*
 * Marks the neighbours of @block as guessed. Marks the nearest neighbour last, because the store
 * reads the latest guess first. Also marks blocks that are being read: otherwise the store could
 * drop such a block as soon as its read ends.
 */
static void want_neighbours(struct actmem_store *store, const struct store_block *block)
{
	uint64_t room = store_window(store), count = follow_ahead(&store->follow);
	bool is_up = store->follow.is_up;
	uint64_t guessed = 0, before = store->schedule.guesses;
	struct store_block *last = NULL, *next = neighbour(store, block, is_up);

	for (; count-- && next && next->length <= room; next = neighbour(store, next, is_up)) {
		room -= next->length;
		last = next;
		guessed++;
	}
	store->guess_lasts = guessed / RENEWED_PART;
	for (; last && last != block; last = neighbour(store, last, !is_up)) {
		if ((!last->order && !last->transfer) || is_urgent(last))
			continue;
		store_want(store, last, schedule_guess(&store->schedule));
		link_append(&store->guessed, &last->guessed);
	}
	end_guesses(store, before);
}

static void store_end_guesses(struct actmem_store *store)
{
	end_guesses(store, store->schedule.guesses);
	store->guess_lasts = 0;
}

void store_begin_round(struct actmem_store *store, bool was_falling)
{
	if (!was_falling || store->schedule.is_falling)
		return;
	follow_reset(&store->follow);
	store_end_guesses(store);
	spillfile_end_round(&store->files);
	store_want_budget(store);
}

void store_follow(struct actmem_store *store, struct store_block *block)
{
	bool was_lost = store->follow.is_lost;

	if (block->is_followed)
		return;
	block->is_followed = true;
	follow_take(&store->follow, kind_of(store, block), block->foreseen.put,
		    put_of(neighbour(store, block, false)), put_of(neighbour(store, block, true)));
	if (!store->follow.is_lost && was_lost)
		store_end_guesses(store);
	if (!store->queue || !store->follow.is_lost)
		return;
	/* Guess again at the second take of a run, which shows the run's direction. */
	if (store->follow.run > 2 && store->guess_lasts)
		store->guess_lasts--;
	else
		want_neighbours(store, block);
}
