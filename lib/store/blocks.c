/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The blocks of a store: finds them by key, sorts them by the time at which they will be taken, and
 * counts them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "queue/queue.h"
#include "store/store.h"

#define BUCKETS_FIRST	256

const char *store_key_text(const struct actmem_store *store, char text[KEY_WORDS],
			   struct actmem_key key)
{
	char name[KEY_WORDS - sizeof("block ''")] = "";

	if (store->name_block)
		store->name_block(key, name, sizeof(name));
	if (*name)
		snprintf(text, KEY_WORDS, "block '%s'", name);
	else if (key.instance)
		snprintf(text, KEY_WORDS, "block %" PRIu64 ".%" PRIu64, key.name,
			 key.instance & ~ACTMEM_INSTANCE_ONCE);
	else
		snprintf(text, KEY_WORDS, "block %" PRIu64, key.name);
	return text;
}

int store_check(const struct actmem_store *store, const char *call)
{
	return store ? check_owner(store->am) : fail(EINVAL, "%s: no store", call);
}

void store_tell(struct actmem_store *store, enum actmem_store_event_kind kind,
		const struct store_block *block, int result)
{
	struct actmem_store_event event = {
		.kind = kind,
		.result = result,
		.key = block->key,
		.length = block->bytes,
		.resident_bytes = store->sums[SUM_RESIDENT].bytes,
		.spilled_bytes = store->sums[SUM_FILED].bytes,
	};

	if (!store->observe)
		return;
	event.time_ns = clock_ns();
	store->observe(&event, store->observe_data);
}

static struct store_block **bucket_of(struct store_block **buckets, size_t count,
				      struct actmem_key key)
{
	uint64_t hash = (key.name * 0x9e3779b97f4a7c15ULL ^ key.instance) * 0xff51afd7ed558ccdULL;

	return &buckets[(hash ^ hash >> 32) & (count - 1)];
}

struct store_block *store_find(struct actmem_store *store, struct actmem_key key)
{
	struct store_block *block;

	if (!store->buckets)
		return NULL;
	block = *bucket_of(store->buckets, store->bucket_count, key);
	while (block && (block->key.name != key.name || block->key.instance != key.instance))
		block = block->chain;
	return block;
}

/*
 * Grows the hash table if it is too small. If there is no memory for a larger table, the chains get
 * longer. Returns false if there is no table at all.
 */
static bool have_buckets(struct actmem_store *store)
{
	size_t count = store->bucket_count ? 2 * store->bucket_count : BUCKETS_FIRST, i;
	struct store_block **buckets, *block, *next;

	if (store->sums[SUM_LIVE].blocks < store->bucket_count)
		return true;
	buckets = calloc(count, sizeof(struct store_block *));
	if (!buckets)
		return store->buckets;
	for (i = 0; i < store->bucket_count; i++) {
		for (block = store->buckets[i]; block; block = next) {
			struct store_block **bucket = bucket_of(buckets, count, block->key);

			next = block->chain;
			block->chain = *bucket;
			*bucket = block;
		}
	}
	free(store->buckets);
	store->buckets = buckets;
	store->bucket_count = count;
	return true;
}

struct store_block *store_add(struct actmem_store *store, struct actmem_key key, uint64_t bytes)
{
	struct store_block *block = calloc(1, sizeof(*block)), **bucket;

	if (!block || !have_buckets(store)) {
		free(block);
		fail(ENOMEM, "no memory for a block's bookkeeping");
		return NULL;
	}
	block->key = key;
	block->bytes = bytes;
	block->length = round_up(bytes, store->unit);
	block->user = USER_WAITS;
	block->thread = thread_number();
	link_init(&block->ended);
	link_init(&block->puts);
	link_init(&block->to_do);
	link_init(&block->guessed);
	bucket = bucket_of(store->buckets, store->bucket_count, key);
	block->chain = *bucket;
	*bucket = block;
	store_update_counts(store, block);
	return block;
}

int store_fail_no_block(const struct actmem_store *store, struct actmem_key key, const char *why)
{
	return fail(ENOENT, "%s %s", KEY_TEXT(store, key), why);
}

static struct order *order_of(struct actmem_store *store, const struct store_block *block)
{
	if (block->user || block->transfer || block->is_ended)
		return NULL;
	if (!block->memory)
		return block->is_unreadable ? NULL : &store->filed;
	return block->is_filed ? &store->clean : &store->dirty;
}

static unsigned int sums_of(const struct store_block *block)
{
	bool is_there = block->memory && block->transfer != TRANSFER_FILL;
	unsigned int sums = 0;

	if (block->memory)
		sums |= 1U << SUM_MEMORY;
	if (block->transfer == TRANSFER_SPILL)
		sums |= 1U << SUM_SPILLING;
	if (block->transfer == TRANSFER_FILL)
		sums |= 1U << SUM_FILLING;
	if (block->is_ended)
		return sums;
	sums |= 1U << SUM_LIVE;
	if (is_there)
		sums |= 1U << SUM_RESIDENT;
	else if (block->is_filed)
		sums |= 1U << SUM_FILED;
	if (block->is_filed || block->transfer == TRANSFER_SPILL)
		sums |= 1U << SUM_AWAY;
	if (block->is_ahead)
		sums |= 1U << SUM_AHEAD;
	return sums;
}

static void count_block(struct actmem_store *store, struct store_block *block, unsigned int sums)
{
	unsigned int changed = sums ^ block->counted, i;

	for (; changed; changed &= changed - 1) {
		struct sum *sum;

		i = (unsigned int)__builtin_ctz(changed);
		sum = &store->sums[i];
		if (sums >> i & 1) {
			sum->blocks++;
			sum->bytes += block->bytes;
			sum->length += block->length;
		} else {
			sum->blocks--;
			sum->bytes -= block->bytes;
			sum->length -= block->length;
		}
	}
	block->counted = sums;
}

void store_count(struct actmem_store *store, uint64_t *total, uint64_t amount)
{
	struct published_traffic *traffic = &store->am->stats.header->traffic;

	*total += amount;
	counter_add(&traffic->totals[total - &store->stats.puts_total], amount);
}

void store_update_counts(struct actmem_store *store, struct store_block *block)
{
	struct order *order = order_of(store, block);
	uint64_t was_live = store->sums[SUM_LIVE].length;
	uint64_t was_filed = store->sums[SUM_FILED].bytes;

	if (block->order != order) {
		if (block->order)
			order_remove(block->order, &block->place);
		if (order)
			order_add(order, &block->place);
		block->order = order;
	}
	count_block(store, block, sums_of(block));
	if (store->sums[SUM_FILED].bytes != was_filed)
		counter_add(&store->am->counters->spilled_bytes,
			    store->sums[SUM_FILED].bytes - was_filed);
	if (store->sums[SUM_LIVE].bytes > store->stats.block_bytes_peak)
		store->stats.block_bytes_peak = store->sums[SUM_LIVE].bytes;
	if (store->sums[SUM_FILED].bytes > store->stats.spilled_bytes_peak)
		store->stats.spilled_bytes_peak = store->sums[SUM_FILED].bytes;
	if (store->sums[SUM_LIVE].length != was_live)
		schedule_live(&store->schedule, store->sums[SUM_LIVE].length);
}

void store_want(struct actmem_store *store, struct store_block *block, struct want want)
{
	if (block->order)
		order_remove(block->order, &block->place);
	block->order = NULL;
	block->place.want = want;
	link_remove(&block->guessed);
	store_update_counts(store, block);
}

void store_add_put(struct actmem_store *store, struct store_block *block)
{
	block->put_clock = store->schedule.clock;
	block->foreseen = schedule_put(&store->schedule, block->key, block->turn);
	block->place.want = block->foreseen;
	block->is_followed = false;
	link_append(&store->puts, &block->puts);
	block->user = USER_NONE;
	store_update_counts(store, block);
}

void store_take_memory(struct actmem_store *store, struct store_block *block, void *memory)
{
	block->memory = memory;
	if (store->queue)
		actmem_heap_locate(store->heap, memory, &block->region, &block->offset);
}

void store_forget_memory(struct actmem_store *store, struct store_block *block)
{
	actmem_heap_free(store->heap, block->memory);
	block->memory = NULL;
}

static void unlink_block(struct actmem_store *store, struct store_block *block)
{
	struct store_block **chain = bucket_of(store->buckets, store->bucket_count, block->key);

	while (*chain != block)
		chain = &(*chain)->chain;
	*chain = block->chain;
}

void store_end(struct actmem_store *store, struct store_block *block)
{
	if (!block->is_ended) {
		block->is_ended = true;
		block->user = USER_NONE;
		unlink_block(store, block);
		link_remove(&block->puts);
		link_remove(&block->guessed);
		link_append(&store->ended, &block->ended);
	} else if (store->is_beyond) {
		/* The block was taken during its spill, so its memory is freed only now. */
		store->is_to_shorten = true;
		pthread_cond_signal(&store->background);
	}
	if (block->memory && !block->transfer)
		store_forget_memory(store, block);
	store_update_counts(store, block);
	if (block->transfer) {
		if (block->is_submitted)
			actmem_queue_cancel(store->queue, block->request);
		return;
	}
	spillfile_give(&store->files, &block->room);
	link_remove(&block->ended);
	free(block);
}

#ifdef ACTMEM_DEBUG
static void check_block(const struct actmem_store *store, const struct store_block *block,
			struct sum sums[SUMS])
{
	const char *wrong = NULL;
	unsigned int i;

	if (block->counted != sums_of(block))
		wrong = "is in a counter of another state";
	else if (block->is_filed && !block->room.block)
		wrong = "is in a file, but has no space in it";
	else if (!block->memory && block->is_ahead)
		wrong = "is counted as read ahead, but has no memory";
	else if (!block->memory && !block->is_filed && block->user != USER_WAITS)
		wrong = "is nowhere";
	if (wrong) {
		fprintf(stderr, "actmem: %s %s\n", KEY_TEXT(store, block->key), wrong);
		abort();
	}
	for (i = 0; i < SUMS; i++) {
		if (!(block->counted >> i & 1))
			continue;
		sums[i].blocks++;
		sums[i].bytes += block->bytes;
		sums[i].length += block->length;
	}
}

void store_check_sums(struct actmem_store *store)
{
	struct sum sums[SUMS] = { 0 };
	const struct store_block *block;
	size_t ordered = store->dirty.count + store->clean.count + store->filed.count, seen = 0, i;
	const struct link *link;

	for (i = 0; i < store->bucket_count; i++) {
		for (block = store->buckets[i]; block; block = block->chain) {
			check_block(store, block, sums);
			seen += !!block->order;
		}
	}
	for (link = store->ended.next; link != &store->ended; link = link->next)
		check_block(store, link_item(link, struct store_block, ended), sums);
	if (!memcmp(sums, store->sums, sizeof(sums)) && seen == ordered)
		return;
	fprintf(stderr, "actmem: the totals of a store differ from the sums over its blocks\n");
	abort();
}
#else
void store_check_sums(struct actmem_store *store)
{
}
#endif
