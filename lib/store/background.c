/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The background thread of a store. It does slow work, so that neither callers nor completions wait
 * for that work. It allocates files, attaches regions, returns disk space that is not needed any
 * more, and asks for memory that was refused before. Transfers that need new file space, or whose
 * region is not attached, wait in two lists. Fills go first, because a thread may wait for them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"
#include "queue/queue.h"
#include "store/store.h"

void store_add_background_work(struct actmem_store *store, struct store_block *block)
{
	if (block->transfer == TRANSFER_FILL)
		link_append(&store->fills_to_do, &block->to_do);
	else
		link_append(&store->spills_to_do, &block->to_do);
	pthread_cond_signal(&store->background);
}

/* Allocates space in files. Like other functions that do slow work, releases the lock meanwhile. */
static int grow_files(struct actmem_store *store, uint64_t length)
{
	struct published_wait *wait;
	struct spill_growth growth;
	int error;

	wait = wait_begin(store->am->waits, WAIT_FILE, 0, length, store->paths[0]);
	pthread_mutex_unlock(&store->lock);
	error = spillfile_grow(&store->files, length, &growth);
	pthread_mutex_lock(&store->lock);
	wait_end(store->am->waits, wait);
	return error ? error : spillfile_add(&store->files, &growth);
}

static int take_file_room(struct actmem_store *store, struct store_block *block)
{
	int error;

	while ((error = spillfile_take(&store->files, block->length, &block->room)) == -ENOSPC) {
		error = grow_files(store, block->length);
		if (error && !spillfile_use_avoided(&store->files))
			return error;
	}
	return error ? fail(ENOMEM, "no memory for the bookkeeping of spill files") : 0;
}

void store_describe_more(struct actmem_store *store, const char *what, const char *why)
{
	const char *before = store->more ? store->more_words[store->more - 1] : store->words;
	const char *queue = actmem_queue_describe(store->queue);
	char spelled[STORE_WORDS], *words;

	if (store->more == STORE_MORE)
		return;
	words = store->more_words[store->more++];
	knob_spell(spelled, sizeof(spelled), why, ACTMEM_NAMES_C);
	/* The queue's part of the description may have changed. */
	snprintf(words, sizeof(store->more_words[0]), "%s%s%s%s", queue,
		 before + strlen(store->queue_description), *why ? what : "", spelled);
	store->queue_description = queue;
	atomic_store(&store->description, words);
}

static void describe_plain(struct actmem_store *store, const char *why)
{
	if (store->is_plain)
		return;
	store->is_plain = true;
	pthread_mutex_lock(&store->lock);
	store_describe_more(store, "; without registered buffers: ", why);
	pthread_mutex_unlock(&store->lock);
}

/* The caller does not hold the lock. */
static int attach_region(struct actmem_store *store, struct actmem_region *region)
{
	int error = actmem_queue_attach(store->queue, region, 0);

	/*
	 * If the queue's description changed, the queue did not register the region. The new
	 * description says why.
	 */
	if (!error && actmem_queue_describe(store->queue) != store->queue_description)
		describe_plain(store, "");
	if (error != -ENOMEM && error != -EMFILE)
		return error;
	describe_plain(store, fail_words());
	return actmem_queue_attach(store->queue, region, ACTMEM_ATTACH_PLAIN);
}

/* Attaches the region. Releases the lock meanwhile; the block's transfer keeps the region open. */
static int attach(struct actmem_store *store, struct actmem_region *region)
{
	int error;

	if (queue_is_attached(store->queue, region))
		return 0;
	pthread_mutex_unlock(&store->lock);
	error = attach_region(store, region);
	pthread_mutex_lock(&store->lock);
	return error;
}

/* Detaches the region. A region that no transfer has used is not attached. */
void store_region_closes(void *data, struct actmem_region *region)
{
	struct actmem_store *store = data;

	if (store->queue && queue_is_attached(store->queue, region))
		actmem_queue_detach(store->queue, region);
}

/*
 * Gets file space for the block, and attaches its region. Another thread can end the block
 * meanwhile.
 */
static int prepare(struct actmem_store *store, struct store_block *block)
{
	int error = 0;

	if (block->transfer == TRANSFER_SPILL && !block->room.block && !block->is_ended)
		error = take_file_room(store, block);
	if (!error && !block->is_ended)
		error = attach(store, block->region);
	return error;
}

/*
 * Called after a spill found no space in the files. Also ends the waiting spills that find no
 * space: each of them would try to allocate more space, and fail in the same way.
 */
static void give_up_spills(struct actmem_store *store, int error)
{
	struct link *link, *next;

	for (link = store->spills_to_do.next; link != &store->spills_to_do; link = next) {
		struct store_block *block = link_item(link, struct store_block, to_do);

		next = link->next;
		if (block->room.block ||
		    !spillfile_take(&store->files, block->length, &block->room))
			continue;
		link_remove(link);
		store_give_up_spill(store, block, error);
	}
}

static void prepare_and_submit(struct actmem_store *store, struct store_block *block)
{
	int error = prepare(store, block);
	bool has_no_room = error && block->transfer == TRANSFER_SPILL && !block->room.block;

	store_submit(store, block, error);
	if (has_no_room)
		give_up_spills(store, error);
}

static void give_back(struct actmem_store *store, struct extent *piece)
{
	int error;

	pthread_mutex_unlock(&store->lock);
	error = spillfile_punch(&store->files, piece);
	pthread_mutex_lock(&store->lock);
	spillfile_punched(&store->files, piece, error);
	if (error)
		store_describe_more(store, "; spill files never get shorter: ", fail_words());
}

static struct store_block *next_to_do(struct actmem_store *store)
{
	struct link *list = link_is_alone(&store->fills_to_do) ? &store->spills_to_do :
			    &store->fills_to_do;
	struct store_block *block;

	if (link_is_alone(list))
		return NULL;
	block = link_item(list->next, struct store_block, to_do);
	link_remove(&block->to_do);
	return block;
}

void *store_background_thread(void *data)
{
	struct actmem_store *store = data;
	struct store_block *block;
	struct extent *piece;

	pthread_mutex_lock(&store->lock);
	for (;;) {
		block = next_to_do(store);
		if (block) {
			prepare_and_submit(store, block);
			store_advance(store);
		} else if (store->is_ending) {
			break;
		} else if ((piece = spillfile_withhold(&store->files))) {
			give_back(store, piece);
		} else if (!store_see_to_budget(store)) {
			pthread_cond_wait(&store->background, &store->lock);
		}
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}
