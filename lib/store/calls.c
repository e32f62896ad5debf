/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The calls on blocks of a store: put, take, and the steps of each. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"
#include "queue/queue.h"
#include "store/store.h"

/* Locks the store, and defers cancellation of the thread until leave(). */
static void enter(struct actmem_store *store)
{
	thread_hold_cancellation();
	pthread_mutex_lock(&store->lock);
}

static void leave(struct actmem_store *store)
{
	pthread_mutex_unlock(&store->lock);
	thread_let_cancellation();
}

static int fail_no_block(const struct actmem_store *store, struct actmem_key key,
			 const char *why)
{
	return fail(ENOENT, "%s %s", KEY_TEXT(store, key), why);
}

static int check_bytes(const struct actmem_store *store, struct actmem_key key, uint64_t bytes)
{
	if (!bytes)
		return fail(EINVAL, "%s: 0 bytes", KEY_TEXT(store, key));
	if (bytes > EXTENT_BYTES_MAX)
		return fail(EINVAL, "%s: %llu bytes; a block has %llu at most", KEY_TEXT(store, key),
			    (unsigned long long)bytes, (unsigned long long)EXTENT_BYTES_MAX);
	if (store->asked && round_up(bytes, store->unit) > store->asked)
		return fail(ENOMEM, "%s has %s, and %s is %s; raise it",
			    KEY_TEXT(store, key), BYTES_TEXT(bytes), KNOB(BUDGET), BYTES_TEXT(store->asked));
	return heap_check_length(store->heap, bytes);
}

/* Adds a block with @user and gets memory for it. */
static int reserve(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
		   enum store_user user, void **memory, uint64_t timeout_ns)
{
	struct store_block *block;
	struct waiter waiter;
	void *room;
	int error = check_bytes(store, key, bytes);

	if (error)
		return error;
	waiter_init(&waiter, timeout_ns);
	enter(store);
	if (store_find(store, key)) {
		error = fail(EEXIST, "%s is in the store", KEY_TEXT(store, key));
		goto unlock;
	}
	block = store_add(store, key, bytes);
	if (!block) {
		error = -ENOMEM;
		goto unlock;
	}
	store->waiting++;
	error = store_room(store, &waiter, block, &room);
	store->waiting--;
	store_end_stall(store, &waiter, block, true);
	if (error) {
		store_end(store, block);
	} else {
		store_take_memory(store, block, room);
		block->user = user;
		store_update_counts(store, block);
		pace_put(&store->pace, block->length);
		*memory = room;
	}
unlock:
	leave(store);
	waiter_destroy(&waiter);
	return error;
}

int actmem_store_reserve(struct actmem_store *store, struct actmem_key key, uint64_t length,
			 void **memory, uint64_t timeout_ns)
{
	int error = store_check(store, "actmem_store_reserve");

	if (error)
		return error;
	if (!memory)
		return fail(EINVAL, "actmem_store_reserve: nowhere to put the memory's address");
	return reserve(store, key, length, USER_FILLS, memory, timeout_ns);
}

/* Returns a block with this user. Otherwise returns NULL and sets an error message. */
static struct store_block *find_used(struct actmem_store *store, struct actmem_key key,
				     enum store_user user)
{
	struct store_block *block = store_find(store, key);

	if (block && block->user == user)
		return block;
	fail_no_block(store, key, !block ? "is not in the store" :
		      user == USER_FILLS ? "is not reserved" : "is not held");
	return NULL;
}

static void want(struct actmem_store *store, struct store_block *block)
{
	block->put_clock = store->schedule.clock;
	block->foreseen = schedule_put(&store->schedule, block->key, block->turn);
	block->place.want = block->foreseen;
	block->is_followed = false;
	link_append(&store->puts, &block->puts);
	block->user = USER_NONE;
	store_update_counts(store, block);
}

/* Commits a block with this user. */
static int commit(struct actmem_store *store, struct actmem_key key, enum store_user user)
{
	struct store_block *block;

	enter(store);
	block = find_used(store, key, user);
	if (block && store->flags & ACTMEM_STORE_CHECKSUM) {
		/*
		 * USER_COMMITS keeps other threads from dropping or committing the block meanwhile.
		 */
		block->user = USER_COMMITS;
		pthread_mutex_unlock(&store->lock);
		block->checksum = checksum(block->memory, block->bytes);
		pthread_mutex_lock(&store->lock);
	}
	if (block) {
		store_count(store, &store->stats.puts_total, 1);
		wait_note(store->am->waits);
		want(store, block);
		store_advance(store);
	}
	leave(store);
	return block ? 0 : -ENOENT;
}

int actmem_store_commit(struct actmem_store *store, struct actmem_key key)
{
	int error = store_check(store, "actmem_store_commit");

	return error ? error : commit(store, key, USER_FILLS);
}

static int find_to_hold(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
			struct store_block **result)
{
	struct store_block *block = store_find(store, key);

	if (!block)
		return fail_no_block(store, key, "is not in the store");
	if (block->user && block->user <= USER_COMMITS)
		return fail_no_block(store, key, "is reserved, and not committed");
	if (block->user)
		return fail(EBUSY, "%s is held", KEY_TEXT(store, key));
	if (bytes && bytes != block->bytes)
		return fail(EINVAL, "%s has %llu bytes, not %llu", KEY_TEXT(store, key),
			    (unsigned long long)block->bytes, (unsigned long long)bytes);
	*result = block;
	return 0;
}

/* Reads the block into memory, or waits for a fill that has begun. */
static int await(struct actmem_store *store, struct store_block *block, uint64_t timeout_ns)
{
	struct waiter waiter;
	void *memory;
	int error = 0;

	waiter_init(&waiter, timeout_ns);
	block->waiter = &waiter;
	store->waiting++;
	if (!block->transfer) {
		error = store_room(store, &waiter, block, &memory);
		if (!error) {
			store_fill(store, block, memory);
			/* After it, read the blocks that are expected next. */
			if (store->follow.is_lost)
				store_advance(store);
		}
	}
	while (!error && block->transfer == TRANSFER_FILL) {
		if (waiter_is_late(&waiter))
			error = fail(ETIMEDOUT, "%s of %s is still being read from its file",
				     KEY_TEXT(store, block->key), BYTES_TEXT(block->bytes));
		else
			store_sleep(store, &waiter, block, WAIT_BLOCK);
	}
	if (!error && waiter.fill_error)
		error = fail(-waiter.fill_error, "%s", waiter.words);
	store->waiting--;
	block->waiter = NULL;
	store_end_stall(store, &waiter, block, false);
	waiter_destroy(&waiter);
	return error;
}

static int fail_changed(const struct actmem_store *store, const struct store_block *block)
{
	const char *path;
	uint64_t at;

	if (!block->is_filed)
		return fail(EBADMSG, "%s of %s is not what was committed: its checksum differs",
			    KEY_TEXT(store, block->key), BYTES_TEXT(block->bytes));
	path = file_place(block->room.file, block->room.offset, &at);
	return fail(EBADMSG, "%s of %s, at %llu of '%s', is not what was committed: its checksum differs",
		    KEY_TEXT(store, block->key), BYTES_TEXT(block->bytes), (unsigned long long)at,
		    path);
}

/*
 * Compares the block's checksum. Releases the lock meanwhile; USER_CLAIMS keeps the block for this
 * thread. If the checksum differs and the block is in a file, the next try reads the file again.
 */
static int verify(struct actmem_store *store, struct store_block *block)
{
	bool is_same;
	int error;

	if (!(store->flags & ACTMEM_STORE_CHECKSUM))
		return 0;
	store->stats.checksums_total++;
	pthread_mutex_unlock(&store->lock);
	is_same = checksum(block->memory, block->bytes) == block->checksum;
	pthread_mutex_lock(&store->lock);
	if (is_same)
		return 0;
	error = fail_changed(store, block);
	if (block->is_filed && block->transfer == TRANSFER_NONE) {
		store_forget_memory(store, block);
		block->is_ahead = false;
		block->is_unreadable = true;
	}
	return error;
}

static void taken(struct actmem_store *store, struct store_block *block)
{
	block->user = USER_HOLDS;
	block->is_ahead = false;
	link_remove(&block->puts);
	link_remove(&block->guessed);
	store_update_counts(store, block);
	store_count(store, &store->stats.takes_total, 1);
	schedule_take(&store->schedule, block->key, block->turn++, block->put_clock);
	pace_take(&store->pace, block->length, clock_ns());
	wait_note(store->am->waits);
}

/* Returns the counter (hit, late or miss) that a take would increment now. */
static uint64_t *kind_of_take(struct actmem_store *store, const struct store_block *block)
{
	if (block->memory && block->transfer != TRANSFER_FILL)
		return &store->stats.hits_total;
	/* The next block to be read was expected too, but its read has not started. */
	if (block->transfer || (store->filed.first == &block->place &&
				block->place.want.at != WANTED_UNKNOWN))
		return &store->stats.late_total;
	return &store->stats.misses_total;
}

/* Caller holds the lock. @bytes 0: accept any length. */
static int hold(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
		uint64_t timeout_ns, struct store_block **result)
{
	struct store_block *block = NULL;
	uint64_t *kind;
	bool is_handed_over;
	int error = find_to_hold(store, key, bytes, &block);

	if (error)
		return error;
	is_handed_over = block->transfer == TRANSFER_SPILL;
	kind = kind_of_take(store, block);
	store_follow(store, block);
	block->user = USER_CLAIMS;
	block->thread = thread_number();
	store_update_counts(store, block);
	if (kind != &store->stats.hits_total)
		error = await(store, block, timeout_ns);
	if (!error)
		error = verify(store, block);
	if (error) {
		block->user = USER_NONE;
		store_update_counts(store, block);
	} else {
		store_count(store, kind, 1);
		store_count(store, &store->stats.handed_over_total, is_handed_over);
		taken(store, block);
		*result = block;
	}
	return error;
}

/* After an error, begins nothing that could fail and overwrite its error message. */
static void advance_after(struct actmem_store *store, int error)
{
	if (error)
		store_kick(store);
	else
		store_advance(store);
}

int actmem_store_hold(struct actmem_store *store, struct actmem_key key, const void **memory,
		      uint64_t *length, uint64_t timeout_ns)
{
	struct store_block *block = NULL;
	int error = store_check(store, "actmem_store_hold");

	if (error)
		return error;
	if (!memory)
		return fail(EINVAL, "actmem_store_hold: nowhere to put the memory's address");
	enter(store);
	error = hold(store, key, 0, timeout_ns, &block);
	if (!error) {
		*memory = block->memory;
		if (length)
			*length = block->bytes;
	}
	advance_after(store, error);
	leave(store);
	return error;
}

static int end_hold(struct actmem_store *store, struct actmem_key key, bool keeps)
{
	struct store_block *block;

	enter(store);
	block = find_used(store, key, USER_HOLDS);
	if (block && keeps)
		want(store, block);
	else if (block)
		store_end(store, block);
	if (block) {
		store_advance(store);
		store_keep_to_budget(store);
	}
	leave(store);
	return block ? 0 : -ENOENT;
}

int actmem_store_release(struct actmem_store *store, struct actmem_key key)
{
	int error = store_check(store, "actmem_store_release");

	return error ? error : end_hold(store, key, false);
}

int actmem_store_put_back(struct actmem_store *store, struct actmem_key key)
{
	int error = store_check(store, "actmem_store_put_back");

	return error ? error : end_hold(store, key, true);
}

int actmem_store_drop(struct actmem_store *store, struct actmem_key key)
{
	struct store_block *block;
	int error = store_check(store, "actmem_store_drop");

	if (error)
		return error;
	enter(store);
	block = store_find(store, key);
	if (!block || block->user == USER_WAITS) {
		error = fail_no_block(store, key, block ? "is being reserved" : "is not in the store");
	} else if (block->user > USER_FILLS) {
		error = fail(EBUSY, "%s is %s", KEY_TEXT(store, key),
			     block->user == USER_COMMITS ? "being committed" : "held");
	} else {
		if (block->is_ahead)
			store_count(store, &store->stats.wasted_bytes_total, block->bytes);
		store_end(store, block);
		if (!store->sums[SUM_LIVE].blocks)
			spillfile_empty(&store->files);
		store_advance(store);
		store_keep_to_budget(store);
	}
	leave(store);
	return error;
}

int actmem_store_prefetch(struct actmem_store *store, struct actmem_key key)
{
	struct store_block *block;
	int error = store_check(store, "actmem_store_prefetch");

	if (error)
		return error;
	enter(store);
	block = store_find(store, key);
	if (!block) {
		error = fail_no_block(store, key, "is not in the store");
	} else if (!block->user) {
		block->is_unreadable = false;
		store_want(store, block, schedule_urgent(&store->schedule));
		store_advance(store);
	}
	leave(store);
	return error;
}

/* USER_COMMITS keeps the block from being dropped during the copy. */
static int put(struct actmem_store *store, struct actmem_key key, const void *data, uint64_t bytes)
{
	void *memory;
	int error = reserve(store, key, bytes, USER_COMMITS, &memory, ACTMEM_WAIT_FOREVER);

	if (error)
		return error;
	memcpy(memory, data, bytes);
	return commit(store, key, USER_COMMITS);
}

int actmem_store_put(struct actmem_store *store, struct actmem_key key, const void *data,
		     uint64_t length)
{
	int error = store_check(store, "actmem_store_put");

	if (error)
		return error;
	if (!data)
		return fail(EINVAL, "actmem_store_put: no data");
	thread_hold_cancellation();
	error = put(store, key, data, length);
	thread_let_cancellation();
	return error;
}

static int take(struct actmem_store *store, struct actmem_key key, void *data, uint64_t bytes)
{
	struct store_block *block = NULL;
	int error;

	enter(store);
	error = hold(store, key, bytes, ACTMEM_WAIT_FOREVER, &block);
	advance_after(store, error);
	leave(store);
	if (error)
		return error;
	memcpy(data, block->memory, bytes);
	return end_hold(store, key, false);
}

int actmem_store_take(struct actmem_store *store, struct actmem_key key, void *data,
		      uint64_t length)
{
	int error = store_check(store, "actmem_store_take");

	if (error)
		return error;
	if (!data || !length)
		return fail(EINVAL, "actmem_store_take: no room for data");
	thread_hold_cancellation();
	error = take(store, key, data, length);
	thread_let_cancellation();
	return error;
}
