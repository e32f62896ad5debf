/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The public functions that put a block (or reserve and commit it), drop it, or prefetch it.
 */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"
#include "queue/queue.h"
#include "store/store.h"

static int check_bytes(const struct actmem_store *store, struct actmem_key key, uint64_t bytes)
{
	if (!bytes)
		return fail(EINVAL, "%s: bytes is 0", KEY_TEXT(store, key));
	if (bytes > EXTENT_BYTES_MAX)
		return fail(EINVAL, "%s: a block of %llu bytes is too large; the maximum is %llu", KEY_TEXT(store, key),
			    (unsigned long long)bytes, (unsigned long long)EXTENT_BYTES_MAX);
	if (store->asked && round_up(bytes, store->unit) > store->asked)
		return fail(ENOMEM, "%s needs %s, but %s is %s; raise it",
			    KEY_TEXT(store, key), BYTES_TEXT(bytes), KNOB(BUDGET), BYTES_TEXT(store->asked));
	return heap_check_length(store->heap, bytes);
}

/* Adds a block and gets memory for it. Sets the block's user to @user. */
static int reserve(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
		   enum store_user user, void **memory, uint64_t timeout_ns)
{
	struct store_block *block;
	struct waiter waiter;
	bool was_falling;
	void *room;
	int error = check_bytes(store, key, bytes);

	if (error)
		return error;
	waiter_init(&waiter, timeout_ns);
	store_enter(store);
	if (store_find(store, key)) {
		error = fail(EEXIST, "%s is already in the store", KEY_TEXT(store, key));
		goto unlock;
	}
	was_falling = store->schedule.is_falling;
	block = store_add(store, key, bytes);
	store_begin_round(store, was_falling);
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
	store_leave(store);
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
		return fail(EINVAL, "actmem_store_reserve: memory is NULL");
	return reserve(store, key, length, USER_FILLS, memory, timeout_ns);
}

/* Commits a block whose user is @user. */
static int commit(struct actmem_store *store, struct actmem_key key, enum store_user user)
{
	struct store_block *block;

	store_enter(store);
	block = store_find(store, key);
	if (!block || block->user != user) {
		store_fail_no_block(store, key, block ? "is not reserved" : "is not in the store");
		store_leave(store);
		return -ENOENT;
	}
	block->has_checksum = store->flags & ACTMEM_STORE_CHECKSUM;
	if (block->has_checksum) {
		/*
		 * USER_COMMITS keeps other threads from dropping or committing the block meanwhile.
		 */
		block->user = USER_COMMITS;
		pthread_mutex_unlock(&store->lock);
		block->checksum = checksum(block->memory, block->bytes);
		pthread_mutex_lock(&store->lock);
	}
	store_count(store, &store->stats.puts_total, 1);
	wait_note(store->am->waits);
	store_add_put(store, block);
	store_advance(store);
	store_leave(store);
	return 0;
}

int actmem_store_commit(struct actmem_store *store, struct actmem_key key)
{
	int error = store_check(store, "actmem_store_commit");

	return error ? error : commit(store, key, USER_FILLS);
}

int actmem_store_drop(struct actmem_store *store, struct actmem_key key)
{
	struct store_block *block;
	int error = store_check(store, "actmem_store_drop");

	if (error)
		return error;
	store_enter(store);
	block = store_find(store, key);
	if (!block || block->user == USER_WAITS) {
		error = store_fail_no_block(store, key, block ? "is being reserved" : "is not in the store");
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
	store_leave(store);
	return error;
}

int actmem_store_prefetch(struct actmem_store *store, struct actmem_key key)
{
	struct store_block *block;
	int error = store_check(store, "actmem_store_prefetch");

	if (error)
		return error;
	store_enter(store);
	block = store_find(store, key);
	if (!block) {
		error = store_fail_no_block(store, key, "is not in the store");
	} else if (!block->user) {
		block->is_unreadable = false;
		block->fill_error = 0;
		store_want(store, block, schedule_urgent(&store->schedule));
		store_advance(store);
	}
	store_leave(store);
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
		return fail(EINVAL, "actmem_store_put: data is NULL");
	thread_hold_cancellation();
	error = put(store, key, data, length);
	thread_let_cancellation();
	return error;
}

int actmem_store_set_checksum(struct actmem_store *store, int on)
{
	int error = store_check(store, "actmem_store_set_checksum");

	if (error)
		return error;
	pthread_mutex_lock(&store->lock);
	store->flags &= ~ACTMEM_STORE_CHECKSUM;
	if (on)
		store->flags |= ACTMEM_STORE_CHECKSUM;
	pthread_mutex_unlock(&store->lock);
	return 0;
}
