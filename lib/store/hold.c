/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Functions that hold and take blocks. To take a block is to hold it, copy its data, and release
 * it. A hold keeps a block in memory while a program uses it. A block may have several holds. The
 * thread with the first hold claims the block (USER_CLAIMS) while it reads the block into memory.
 * Other threads that want to hold the block wait meanwhile.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "queue/queue.h"
#include "store/store.h"

/*
 * Waits until no other thread claims the block, or the timeout passes. By then, the block may have
 * been removed from the store.
 */
static void await_claim(struct actmem_store *store, struct waiter *waiter,
			struct store_block *block)
{
	waiter->claimed = block;
	link_append(&store->claim_waiters, &waiter->link);
	/* This thread frees nothing while it waits, so the first waiter for memory may fail. */
	store_kick(store);
	while (!link_is_alone(&waiter->link) && !waiter_is_late(waiter))
		store_sleep(store, waiter, block, WAIT_BLOCK);
	if (link_is_alone(&waiter->link))
		return;
	link_remove(&waiter->link);
	store_end_stall(store, waiter, block, false);
}

/* Wakes the threads that wait for the end of this thread's claim. */
static void end_claim(struct actmem_store *store, struct store_block *block)
{
	struct link *link, *next;
	struct waiter *waiter;

	for (link = store->claim_waiters.next; link != &store->claim_waiters; link = next) {
		next = link->next;
		waiter = link_item(link, struct waiter, link);
		if (waiter->claimed != block)
			continue;
		link_remove(link);
		store_end_stall(store, waiter, block, false);
		pthread_cond_signal(&waiter->wake);
	}
}

/* Finds a block that is committed, and waits until no thread claims it. */
static int find_to_hold(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
			struct waiter *waiter, struct store_block **result)
{
	struct store_block *block;

	while ((block = store_find(store, key)) && block->user == USER_CLAIMS) {
		if (waiter_is_late(waiter))
			return fail(ETIMEDOUT, "%s of %s is still being read for another thread",
				    KEY_TEXT(store, key), BYTES_TEXT(block->bytes));
		await_claim(store, waiter, block);
	}
	if (!block)
		return store_fail_no_block(store, key, "is not in the store");
	if (block->user && block->user <= USER_COMMITS)
		return store_fail_no_block(store, key, "is reserved, but not committed");
	if (block->is_released)
		return store_fail_no_block(store, key, "was released");
	if (bytes && bytes != block->bytes)
		return fail(EINVAL, "%s has %llu bytes, not %llu", KEY_TEXT(store, key),
			    (unsigned long long)block->bytes, (unsigned long long)bytes);
	*result = block;
	return 0;
}

/* Returns the error of a read that no thread waited for. The next hold reads the block again. */
static int fail_unattended(const struct actmem_store *store, struct store_block *block)
{
	const char *path;
	uint64_t at;
	int error = -block->fill_error;

	block->fill_error = 0;
	path = file_place(block->room.file, block->room.offset, &at);
	return fail(error, "%s of %s cannot be read again from %llu of '%s' (%s)", KEY_TEXT(store, block->key),
		    BYTES_TEXT(block->bytes), (unsigned long long)at, path, strerror(error));
}

/* Reads the block into memory, or waits for a read that has already begun. */
static int await_block(struct actmem_store *store, struct waiter *waiter, struct store_block *block)
{
	void *memory;
	int error = 0;

	/* Report the error of an earlier read to a caller that never waits. */
	if (block->fill_error && waiter_is_late(waiter))
		return fail_unattended(store, block);
	block->waiter = waiter;
	if (!block->transfer) {
		error = store_room(store, waiter, block, &memory);
		if (!error) {
			store_fill(store, block, memory);
			/* After this block, read the blocks that are expected next. */
			if (store->follow.is_lost)
				store_advance(store);
		}
	}
	while (!error && block->transfer == TRANSFER_FILL) {
		if (waiter_is_late(waiter))
			error = fail(ETIMEDOUT, "%s of %s is still being read from its file",
				     KEY_TEXT(store, block->key), BYTES_TEXT(block->bytes));
		else
			store_sleep(store, waiter, block, WAIT_BLOCK);
	}
	if (!error && waiter->fill_error)
		error = fail(-waiter->fill_error, "%s", waiter->words);
	block->waiter = NULL;
	store_end_stall(store, waiter, block, false);
	return error;
}

static int fail_changed(const struct actmem_store *store, const struct store_block *block)
{
	const char *path;
	uint64_t at;

	if (!block->is_filed)
		return fail(EBADMSG, "%s of %s differs from the committed data: its checksum is wrong",
			    KEY_TEXT(store, block->key), BYTES_TEXT(block->bytes));
	path = file_place(block->room.file, block->room.offset, &at);
	return fail(EBADMSG, "%s of %s, at %llu of '%s', differs from the committed data: its checksum is wrong",
		    KEY_TEXT(store, block->key), BYTES_TEXT(block->bytes), (unsigned long long)at,
		    path);
}

/*
 * Compares the block's data with its checksum. Releases the lock meanwhile; the hold keeps the
 * block in memory. If the checksum differs, and the block is also in a file and has no other
 * holder, frees the block's memory. The next hold then reads the file again.
 */
static int compare_checksum(struct actmem_store *store, struct store_block *block)
{
	bool is_same;
	int error;

	if (!block->has_checksum)
		return 0;
	store->stats.checksums_total++;
	pthread_mutex_unlock(&store->lock);
	is_same = checksum(block->memory, block->bytes) == block->checksum;
	pthread_mutex_lock(&store->lock);
	if (is_same)
		return 0;
	error = fail_changed(store, block);
	if (block->is_filed && block->transfer == TRANSFER_NONE && !block->holders->next) {
		store_forget_memory(store, block);
		block->is_ahead = false;
		block->is_unreadable = true;
	}
	return error;
}

static void note_take(struct actmem_store *store, struct store_block *block)
{
	block->user = USER_HOLDS;
	block->is_ahead = false;
	link_remove(&block->puts);
	link_remove(&block->guessed);
	store_update_counts(store, block);
	schedule_take(&store->schedule, block->key, block->turn++, block->put_clock);
	pace_take(&store->pace, block->length, clock_ns());
}

/* Returns the counter (hit, late or miss) to increment if the block is taken now. */
static uint64_t *counter_of_take(struct actmem_store *store, const struct store_block *block)
{
	if (block->memory && block->transfer != TRANSFER_FILL)
		return &store->stats.hits_total;
	/*
	 * Late: the block is being read, or the store expects it to be taken and will read it next.
	 */
	if (block->transfer || (store->filed.first == &block->place &&
				block->place.want.at != WANTED_UNKNOWN))
		return &store->stats.late_total;
	return &store->stats.misses_total;
}

/*
 * Ends a hold. When the last hold ends, removes the block from the store if any holder released
 * the block.
 */
static void end_holder(struct actmem_store *store, struct store_block *block,
		       struct holder *holder)
{
	struct holder **link = &block->holders;

	while (*link != holder)
		link = &(*link)->next;
	*link = holder->next;
	free(holder);
	if (block->holders)
		return;
	if (block->is_released) {
		store_end(store, block);
	} else if (block->user == USER_CLAIMS) {
		block->user = USER_NONE;
		store_update_counts(store, block);
	} else {
		store_add_put(store, block);
	}
}

/* Holds a block for @holder. Reads the block if it is not in memory, and verifies its checksum. */
static int claim_block(struct actmem_store *store, struct waiter *waiter, struct store_block *block,
		       struct holder *holder)
{
	bool is_handed_over = block->transfer == TRANSFER_SPILL, is_first = !block->holders;
	uint64_t *counter = counter_of_take(store, block);
	int error = 0;

	holder->next = block->holders;
	block->holders = holder;
	if (is_first) {
		store_follow(store, block);
		block->user = USER_CLAIMS;
		store_update_counts(store, block);
		if (counter != &store->stats.hits_total)
			error = await_block(store, waiter, block);
	}
	if (!error)
		error = compare_checksum(store, block);
	if (!error) {
		holder->is_ready = true;
		store_count(store, counter, 1);
		store_count(store, &store->stats.handed_over_total, is_handed_over);
		store_count(store, &store->stats.takes_total, 1);
		wait_note(store->am->waits);
		if (is_first)
			note_take(store, block);
	}
	if (is_first)
		end_claim(store, block);
	if (error)
		end_holder(store, block, holder);
	return error;
}

/* Caller holds the lock. If @bytes is 0, accepts a block of any length. */
static int hold_block(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
		      uint64_t timeout_ns, struct store_block **result)
{
	struct holder *holder = calloc(1, sizeof(*holder));
	struct waiter waiter;
	int error;

	if (!holder)
		return fail(ENOMEM, "no memory for the bookkeeping of a hold");
	holder->thread = thread_number();
	waiter_init(&waiter, timeout_ns);
	store->waiting++;
	error = find_to_hold(store, key, bytes, &waiter, result);
	if (error)
		free(holder);
	else
		error = claim_block(store, &waiter, *result, holder);
	store->waiting--;
	waiter_destroy(&waiter);
	/* After an error, begin nothing that could fail and overwrite the error message. */
	if (error)
		store_kick(store);
	else
		store_advance(store);
	return error;
}

int actmem_store_hold(struct actmem_store *store, struct actmem_key key, const void **memory,
		      uint64_t *length, uint64_t timeout_ns)
{
	struct store_block *block = NULL;
	int error = store_check(store, "actmem_store_hold");

	if (error)
		return error;
	if (!memory)
		return fail(EINVAL, "actmem_store_hold: memory is NULL");
	store_enter(store);
	error = hold_block(store, key, 0, timeout_ns, &block);
	if (!error) {
		*memory = block->memory;
		if (length)
			*length = block->bytes;
	}
	store_leave(store);
	return error;
}

/* Returns a hold of this thread. If there is none, returns a hold of another thread, or NULL. */
static struct holder *find_holder(const struct store_block *block)
{
	struct holder *holder, *found = NULL;

	for (holder = block->holders; holder; holder = holder->next)
		if (holder->is_ready && (!found || holder->thread == thread_number()))
			found = holder;
	return found;
}

static int end_hold(struct actmem_store *store, struct actmem_key key, bool is_release)
{
	struct store_block *block;
	struct holder *holder = NULL;
	int error = 0;

	store_enter(store);
	block = store_find(store, key);
	if (block)
		holder = find_holder(block);
	if (holder) {
		block->is_released |= is_release;
		end_holder(store, block, holder);
		store_advance(store);
		store_keep_to_budget(store);
	} else {
		error = store_fail_no_block(store, key, block ? "is not held" :
					    "is not in the store");
	}
	store_leave(store);
	return error;
}

int actmem_store_release(struct actmem_store *store, struct actmem_key key)
{
	int error = store_check(store, "actmem_store_release");

	return error ? error : end_hold(store, key, true);
}

int actmem_store_put_back(struct actmem_store *store, struct actmem_key key)
{
	int error = store_check(store, "actmem_store_put_back");

	return error ? error : end_hold(store, key, false);
}

static int take_block(struct actmem_store *store, struct actmem_key key, void *data, uint64_t bytes)
{
	struct store_block *block = NULL;
	int error;

	store_enter(store);
	error = hold_block(store, key, bytes, ACTMEM_WAIT_FOREVER, &block);
	store_leave(store);
	if (error)
		return error;
	memcpy(data, block->memory, bytes);
	return end_hold(store, key, true);
}

int actmem_store_take(struct actmem_store *store, struct actmem_key key, void *data,
		      uint64_t length)
{
	int error = store_check(store, "actmem_store_take");

	if (error)
		return error;
	if (!data || !length)
		return fail(EINVAL, "actmem_store_take: data is NULL, or its length is 0");
	thread_hold_cancellation();
	error = take_block(store, key, data, length);
	thread_let_cancellation();
	return error;
}
