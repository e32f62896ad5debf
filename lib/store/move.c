/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Spills and fills: chooses the blocks and the time, and handles the results. */
#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/base.h"
#include "queue/queue.h"
#include "store/store.h"

/* After taking this many blocks in a row, the program is expected to put none for a while. */
#define TAKES_IN_A_ROW	4

static void begin(struct actmem_store *store, struct store_block *block,
		  enum store_transfer transfer)
{
	bool is_spill = transfer == TRANSFER_SPILL;

	block->transfer = transfer;
	block->is_submitted = false;
	store->prepared++;
	store_update_counts(store, block);
	store_tell(store, is_spill ? ACTMEM_STORE_SPILL_BEGIN : ACTMEM_STORE_FILL_BEGIN, block, 0);
}

static int submit_transfer(struct actmem_store *store, struct store_block *block)
{
	bool is_spill = block->transfer == TRANSFER_SPILL;
	struct actmem_request request;
	int error;

	ACTMEM_INIT(&request);
	request.cookie = (uintptr_t)block;
	error = (is_spill ? actmem_queue_spill : actmem_queue_fill)(
		store->queue, block->room.file, block->room.offset, block->region, block->offset,
		block->length, &request);
	if (error)
		return error;
	block->request = request.id;
	block->is_submitted = true;
	bandwidth_begin(is_spill ? &store->write : &store->read, block->length, clock_ns());
	store->under_way++;
	return 0;
}

/* Passes the error message to the first waiter for memory. */
static void tell_waiter(struct actmem_store *store, const struct store_block *block, int error,
			const char *words)
{
	struct waiter *waiter;

	store_count(store, &store->stats.failed_spills_total, 1);
	store->spills_fail = true;
	if (link_is_alone(&store->waiters))
		return;
	waiter = link_item(store->waiters.next, struct waiter, link);
	waiter->spill_error = error;
	snprintf(waiter->words, sizeof(waiter->words), "%s of %s cannot be spilled: %s",
		 KEY_TEXT(store, block->key), BYTES_TEXT(block->bytes), words);
}

static void end_spill(struct actmem_store *store, struct store_block *block, int error)
{
	block->transfer = TRANSFER_NONE;
	if (!block->is_ended)
		store_update_counts(store, block);
	store_tell(store, ACTMEM_STORE_SPILL_END, block, error);
	if (block->is_ended)
		store_end(store, block);
}

/*
 * Handles the end of a spill. If @bad_room is set, a disk failed while it wrote to the block's
 * space, so use this space last.
 */
static void spill_ended(struct actmem_store *store, struct store_block *block, int error,
			const char *words, bool bad_room)
{
	if (!error) {
		block->is_filed = true;
		store->spills_fail = false;
		store_count(store, &store->stats.spilled_bytes_total, block->bytes);
	} else {
		if (bad_room)
			spillfile_avoid(&store->files, &block->room);
		else
			spillfile_give(&store->files, &block->room);
		if (!block->is_ended)
			tell_waiter(store, block, error, words);
	}
	end_spill(store, block, error);
}

void store_give_up_spill(struct actmem_store *store, struct store_block *block, int error)
{
	store->prepared--;
	end_spill(store, block, error);
}

static void fill_ended(struct actmem_store *store, struct store_block *block, int error,
		       const char *words)
{
	struct waiter *waiter = block->waiter;

	block->transfer = TRANSFER_NONE;
	if (!error) {
		store_count(store, &store->stats.filled_bytes_total, block->bytes);
	} else {
		block->is_ahead = false;
		store_forget_memory(store, block);
		if (!block->is_ended) {
			store_count(store, &store->stats.failed_fills_total, 1);
			block->is_unreadable = true;
		}
		block->fill_error = waiter ? 0 : error;
		if (waiter) {
			waiter->fill_error = error;
			snprintf(waiter->words, sizeof(waiter->words),
				 "%s of %s cannot be read again: %s", KEY_TEXT(store, block->key),
				 BYTES_TEXT(block->bytes), words);
		}
	}
	if (!block->is_ended)
		store_update_counts(store, block);
	store_tell(store, ACTMEM_STORE_FILL_END, block, error);
	if (store->event.descriptor >= 0)
		eventfd_write(store->event.descriptor, 1);
	if (waiter)
		pthread_cond_signal(&waiter->wake);
	if (block->is_ended)
		store_end(store, block);
}

void store_submit(struct actmem_store *store, struct store_block *block, int error)
{
	if (!error)
		error = block->is_ended ? -ECANCELED : submit_transfer(store, block);
	store->prepared--;
	if (!error)
		return;
	if (block->transfer == TRANSFER_SPILL)
		spill_ended(store, block, error, fail_words(), false);
	else
		fill_ended(store, block, error, fail_words());
}

static void submit_or_prepare(struct actmem_store *store, struct store_block *block)
{
	if (queue_is_attached(store->queue, block->region))
		store_submit(store, block, 0);
	else
		store_add_background_work(store, block);
}

void store_spill(struct actmem_store *store, struct store_block *block)
{
	begin(store, block, TRANSFER_SPILL);
	if (!spillfile_take(&store->files, block->length, &block->room))
		submit_or_prepare(store, block);
	else
		store_add_background_work(store, block);
}

void store_fill(struct actmem_store *store, struct store_block *block, void *memory)
{
	store_take_memory(store, block, memory);
	block->is_unreadable = false;
	block->fill_error = 0;
	begin(store, block, TRANSFER_FILL);
	submit_or_prepare(store, block);
}

bool store_drop_clean(struct actmem_store *store, const struct store_block *later_than)
{
	struct order_place *last = store->clean.first;
	struct store_block *block;

	if (!last || (later_than && !want_is_sooner(&later_than->place.want, &last->want)))
		return false;
	block = link_item(last, struct store_block, place);
	if (block->is_ahead)
		store_count(store, &store->stats.wasted_bytes_total, block->bytes);
	block->is_ahead = false;
	store_forget_memory(store, block);
	store_update_counts(store, block);
	return true;
}

uint64_t store_window(const struct actmem_store *store)
{
	uint64_t most = store->budget / 2;

	if (store->fixed_window)
		return store->fixed_window < most ? store->fixed_window : most;
	return pace_window(&store->pace, &store->read,
			   bandwidth_busy(&store->read, store->busy_bytes), store->budget);
}

/*
 * Returns how many bytes of the budget should be available at once when memory use peaks: bytes
 * that are free, or whose block is also in a file. The result is store_window() if no peak is
 * known, or if the program puts new blocks while it takes old ones. Otherwise the result is at most
 * twice the longest block. If this many bytes are available, new blocks need not wait, and more
 * spills would be useless.
 */
static uint64_t spare_bytes(const struct actmem_store *store)
{
	uint64_t window = store_window(store), least = 2 * store->pace.longest;

	return schedule_peak(&store->schedule) && !schedule_refill(&store->schedule) &&
	       least < window ? least : window;
}

/* Returns how many of @most bytes should be in files or being spilled. */
static uint64_t away_of(const struct actmem_store *store, uint64_t most)
{
	uint64_t room = store->budget - spare_bytes(store);

	return most > room ? most - room : 0;
}

static uint64_t away_wanted(const struct actmem_store *store)
{
	uint64_t live = store->sums[SUM_LIVE].length, peak = schedule_peak(&store->schedule);
	uint64_t most = live > peak ? live : peak;

	if (!schedule_is_rising(&store->schedule, live) || (peak && most <= store->budget))
		return 0;
	return away_of(store, most);
}

/*
 * Returns true if the block will be taken so late that it need not stay in memory: blocks that fill
 * three quarters of the memory will be taken before it.
 */
static bool is_late(const struct actmem_store *store, const struct store_block *block)
{
	uint64_t room = store->budget - spare_bytes(store), length = store->pace.length;

	return block->place.want.at == WANTED_UNKNOWN || !length ||
	       block->place.want.at > store->schedule.clock + room / length * 3 / 4;
}

/*
 * Returns true if the transfers under way keep the disks busy. More transfers would delay a
 * transfer that becomes urgent.
 */
static bool is_busy(const struct actmem_store *store, enum store_sum sum,
		    const struct bandwidth *bandwidth)
{
	return store->sums[sum].blocks >= 2 &&
	       store->sums[sum].length >= bandwidth_busy(bandwidth, store->busy_bytes);
}

/*
 * Returns true if the store should spill a block before its memory is needed. A block that will be
 * taken soon is spilled only if memory gets short.
 */
static bool wants_spill(const struct actmem_store *store)
{
	const struct order_place *last = store->dirty.first;
	uint64_t away = store->sums[SUM_AWAY].length;

	if (!last || store->spills_fail || is_busy(store, SUM_SPILLING, &store->write) ||
	    away >= away_wanted(store))
		return false;
	return is_late(store, link_item(last, struct store_block, place)) ||
	       away < away_of(store, store->sums[SUM_LIVE].length);
}

/*
 * Returns true if no new blocks are expected for a while, and if the next new blocks will still
 * have enough memory after the store uses @length more bytes.
 */
static bool may_use_all(const struct actmem_store *store, uint64_t length)
{
	uint64_t used = store->sums[SUM_MEMORY].length + length;

	return store->schedule.takes_since_put >= TAKES_IN_A_ROW &&
	       used + schedule_refill(&store->schedule) <= store->budget;
}

/*
 * When blocks are not taken in the expected order, any block may be next. Returns true if the store
 * should read a block of @length bytes ahead nevertheless. The store reads only into memory that
 * the next run (follow.h) does not need: otherwise that run would evict the block. The store reads
 * one block at a time, so that an urgent fill need not wait long.
 */
static bool may_guess(const struct actmem_store *store, uint64_t length)
{
	uint64_t window = store_window(store), run = store->pace.longest;

	if (store->follow.is_lost)
		run = store->follow.last_run < window / run ?
		      (store->follow.last_run + 1) * run : window;
	return !store->sums[SUM_FILLING].blocks && may_use_all(store, length + run);
}

/*
 * Returns true if the store should read this block now. While the program puts new blocks, blocks
 * that were read ahead may use at most store_window() bytes.
 */
static bool is_to_be_read(const struct actmem_store *store, const struct store_block *block)
{
	const struct want *want = &block->place.want;
	uint64_t window, takes;

	/* The program asked for this block, or the run is expected to reach it. */
	if (!want->at)
		return true;
	if (store->follow.doubt)
		return may_guess(store, block->length);
	if (may_use_all(store, block->length))
		return true;
	window = store_window(store);
	if (want->at == WANTED_UNKNOWN || store->sums[SUM_AHEAD].length + block->length > window)
		return false;
	takes = want->at > store->schedule.clock ? want->at - store->schedule.clock : 0;
	return takes * store->pace.length <= window;
}

static bool read_ahead(struct actmem_store *store)
{
	struct order_place *first = store->filed.first;
	struct store_block *block;
	bool is_guess;
	void *memory;
	int error;

	/* While regions are being freed for a lowered budget, do not read dropped blocks again. */
	if (!first || store->is_lowered || !link_is_alone(&store->waiters) ||
	    is_busy(store, SUM_FILLING, &store->read))
		return false;
	block = link_item(first, struct store_block, place);
	if (!is_to_be_read(store, block))
		return false;
	is_guess = store->follow.doubt && block->place.want.at;
	while ((error = store_take_room(store, block->length, &memory)))
		if (error != -ENOSPC || is_guess || !store_drop_clean(store, block))
			return false;
	block->is_ahead = true;
	store_fill(store, block, memory);
	return true;
}

bool store_is_over(const struct actmem_store *store, uint64_t length)
{
	return store->is_lowered && store->sums[SUM_MEMORY].length + length > store->budget;
}

/*
 * Drops or spills one more block, because a region may then become free. store_keep_to_budget()
 * then checks whether a region is free.
 */
static bool gather_blocks(struct actmem_store *store)
{
	if (!store->is_scattered || store->sums[SUM_SPILLING].blocks)
		return false;
	if (store_drop_clean(store, NULL)) {
		store->is_scattered = false;
		return true;
	}
	if (store->dirty.first && !store->spills_fail)
		store_spill(store, link_item(store->dirty.first, struct store_block, place));
	return false;
}

/* Drops and spills blocks until the rest fits in a budget that was lowered. */
static void give_memory_back(struct actmem_store *store)
{
	bool any = false;

	while (store_is_over(store, 0) && store_drop_clean(store, NULL))
		any = true;
	while (store_is_over(store, 0) && store->dirty.first && !store->spills_fail &&
	       !is_busy(store, SUM_SPILLING, &store->write) &&
	       store->sums[SUM_MEMORY].length - store->sums[SUM_SPILLING].length > store->budget)
		store_spill(store, link_item(store->dirty.first, struct store_block, place));
	any |= gather_blocks(store);
	if (!any)
		return;
	store->is_to_shorten = true;
	pthread_cond_signal(&store->background);
}

void store_advance(struct actmem_store *store)
{
	store_check_sums(store);
	if (store->queue && !store->is_ending) {
		give_memory_back(store);
		while (wants_spill(store))
			store_spill(store, link_item(store->dirty.first, struct store_block,
						     place));
		while (read_ahead(store))
			;
		if (spillfile_is_to_shrink(&store->files))
			pthread_cond_signal(&store->background);
	}
	store_kick(store);
}

/*
 * Handles a completion. The caller fetched only this completion, so the thread's error message
 * belongs to it.
 */
static void complete(struct actmem_store *store, const struct actmem_completion *completion)
{
	struct store_block *block = (struct store_block *)(uintptr_t)completion->cookie;
	bool is_spill = block->transfer == TRANSFER_SPILL;

	store->under_way--;
	block->is_submitted = false;
	bandwidth_end(is_spill ? &store->write : &store->read, block->length, !completion->result,
		      clock_ns());
	if (is_spill)
		spill_ended(store, block, completion->result, fail_words(),
			    completion->result == -EIO);
	else
		fill_ended(store, block, completion->result, fail_words());
}

void store_take_ended(void *data)
{
	struct actmem_completion completion;
	struct actmem_store *store = data;

	pthread_mutex_lock(&store->lock);
	while (actmem_queue_wait(store->queue, &completion, 1, 0) == 1)
		complete(store, &completion);
	store_advance(store);
	if (!store->under_way && store->is_ending)
		pthread_cond_signal(&store->all_ended);
	pthread_mutex_unlock(&store->lock);
}
