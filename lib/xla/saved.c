// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The table of live blocks and the generations they belong to; see saved.h.
 *
 * One mutex guards all of it: it is held for tens of nanoseconds per put or
 * take, never while memory is copied or the store is called, which can wait.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actmem_xla.h"
#include "counts.h"
#include "memory.h"
#include "saved.h"
#include "site.h"
#include "table.h"

/*
 * A token is the number of its site in the upper bits and a serial number
 * that never comes again in the lower ones, so that the site of a token that
 * is in no table any more can still be told.
 */
#define SERIAL_BITS	40
#define SERIAL_MASK	((UINT64_C(1) << SERIAL_BITS) - 1)

/*
 * What recurs in every step, and so names a block to the store: the site, the
 * device, and the how manieth put of the generation it is.
 */
#define NAME_DEVICE_BITS	8
#define NAME_ORDINAL_BITS	(SERIAL_BITS - NAME_DEVICE_BITS)
#define NAME_ORDINAL_MASK	((UINT64_C(1) << NAME_ORDINAL_BITS) - 1)
_Static_assert(ACTMEM_XLA_DEVICES_MAX <= 1 << NAME_DEVICE_BITS, "devices in a name");

struct generation {
	int64_t run;
	uint32_t device;
	uint64_t first, last;		/* serial numbers of its blocks */
	uint64_t blocks;		/* live ones */
	uint64_t puts;
	struct saved *list;
	struct site *site;
	struct generation *next;	/* younger */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t serial;

static void generation_end(struct generation *generation)
{
	struct generation **link = &generation->site->oldest;

	while (*link != generation)
		link = &(*link)->next;
	*link = generation->next;
	counts.generations--;
	free(generation);
}

/* Out of the table. Its generation ends with its last block. */
static void block_unlink(struct saved *block)
{
	struct generation *generation = block->generation;

	table_remove(block);
	*block->link = block->next;
	if (block->next)
		block->next->link = block->link;
	counts_end(block->device, block->bytes);
	block->generation = NULL;
	if (!--generation->blocks)
		generation_end(generation);
}

/*
 * Moves all blocks of @generation, which ends by it, onto *@freed; those
 * still being filled are freed by their filler instead.
 */
static uint64_t generation_abandon(struct generation *generation,
				   struct saved **freed)
{
	uint64_t left = generation->blocks, count = left;
	struct saved *block;

	while (left--) {
		block = generation->list;
		block_unlink(block);
		if (block->filling) {
			block->abandoned = 1;
		} else {
			block->next = *freed;
			*freed = block;
		}
	}
	return count;
}

/* Of a block that nobody wants any more, and that nobody has. */
static void saved_drop(struct saved *block)
{
	if (block->bytes)
		memory_drop(block->key);
	free(block);
}

static void saved_drop_list(struct saved *list)
{
	struct saved *next;

	for (; list; list = next) {
		next = list->next;
		saved_drop(list);
	}
}

static struct generation *site_oldest(const struct site *site, uint32_t device,
				      uint64_t *count)
{
	struct generation *generation, *oldest = NULL;

	*count = 0;
	for (generation = site->oldest; generation; generation = generation->next) {
		if (generation->device != device)
			continue;
		if (!oldest)
			oldest = generation;
		++*count;
	}
	return oldest;
}

/* Reclaims until one more generation may begin at @site on @device. */
static void site_make_room(struct site *site, uint32_t device,
			   struct saved **freed)
{
	struct generation *oldest;
	uint64_t count, before;

	while (counts.generations_max) {
		oldest = site_oldest(site, device, &count);
		if (count < counts.generations_max)
			break;
		site_remember(site, oldest->first, oldest->last);
		before = counts.live_bytes;
		counts.reclaimed_blocks_total += generation_abandon(oldest, freed);
		counts.reclaimed_bytes_total += before - counts.live_bytes;
	}
}

static struct generation *generation_find(struct site *site,
					  const struct origin *origin,
					  struct saved **freed)
{
	struct generation **link, *generation;

	for (generation = site->oldest; generation; generation = generation->next)
		if (generation->run == origin->run &&
		    generation->device == origin->device)
			return generation;
	if (origin->bounded)
		site_make_room(site, origin->device, freed);
	generation = calloc(1, sizeof(*generation));
	if (!generation)
		return NULL;
	generation->run = origin->run;
	generation->device = origin->device;
	generation->site = site;
	generation->first = serial + 1;
	for (link = &site->oldest; *link; )
		link = &(*link)->next;
	*link = generation;
	counts.generations++;
	return generation;
}

static struct actmem_key key_of(const struct saved *block,
				const struct generation *generation)
{
	struct actmem_key key = {
		.name = generation->site->number << SERIAL_BITS |
			(uint64_t)block->device << NAME_ORDINAL_BITS |
			(generation->puts & NAME_ORDINAL_MASK),
		.instance = block->token | ACTMEM_INSTANCE_ONCE,
	};

	return key;
}

static void block_link(struct saved *block, struct generation *generation)
{
	generation->last = ++serial;
	block->token = generation->site->number << SERIAL_BITS | serial;
	block->key = key_of(block, generation);
	block->generation = generation;
	generation->puts++;
	table_add(block);
	block->next = generation->list;
	block->link = &generation->list;
	if (block->next)
		block->next->link = &block->next;
	generation->list = block;
	generation->blocks++;
	counts_put(block->device, block->bytes, generation->run);
}

/* Whether another execution has live blocks. */
static int others_are_unfinished(int64_t run)
{
	struct generation *generation;
	struct site *site;
	uint64_t i;

	for (i = 0; (site = site_numbered(i)); i++)
		for (generation = site->oldest; generation; generation = generation->next)
			if (generation->run != run)
				return 1;
	return 0;
}

/* Gives @block up, for which there is no memory, and says why in @words. */
static int put_failed(struct saved *block, const struct origin *origin, int ret, int has_store,
		      const char *why, char *words)
{
	const char *others = "";
	char what[64] = "nothing can be saved";
	int used;

	pthread_mutex_lock(&lock);
	counts_put_failed(block->device, block->bytes, origin->run);
	if (!block->abandoned)
		block_unlink(block);
	if ((ret == -ENOMEM || ret == -ENOSPC || ret == -EDQUOT) &&
	    others_are_unfinished(origin->run))
		others = "; other forward passes are unfinished, and have memory: if they failed, actmem.jax.reset() frees it";
	pthread_mutex_unlock(&lock);
	if (has_store)
		snprintf(what, sizeof(what), "no memory for a block of %" PRIu64 " bytes",
			 block->bytes);
	free(block);
	used = snprintf(words, SAVED_WORDS, "actmem: %s at %.*s: ", what,
			(int)origin->site_length, origin->site);
	if (used >= SAVED_WORDS)
		used = 0;
	snprintf(words + used, SAVED_WORDS - (size_t)used, "%s%s", why, others);
	return ret;
}

int saved_begin(const struct origin *origin, uint64_t bytes,
		struct saved **result, char *words)
{
	struct generation *generation = NULL;
	struct saved *block, *freed = NULL;
	char why[SAVED_WORDS];
	struct site *site;
	int has_store;
	int ret;

	if (origin->device >= ACTMEM_XLA_DEVICES_MAX) {
		snprintf(words, SAVED_WORDS,
			 "actmem: device %" PRIu32 " of a process; %d are supported",
			 origin->device, ACTMEM_XLA_DEVICES_MAX);
		return -ERANGE;
	}
	block = calloc(1, sizeof(*block));
	if (!block)
		goto no_memory;
	block->bytes = bytes;
	block->device = origin->device;
	block->filling = 1;
	/*
	 * The generation first: the blocks that it pushes out are the memory
	 * that this one needs.
	 */
	pthread_mutex_lock(&lock);
	site = table_reserve() ? NULL :
	       site_named(origin->site, origin->site_length);
	if (site)
		generation = generation_find(site, origin, &freed);
	if (generation)
		block_link(block, generation);
	pthread_mutex_unlock(&lock);
	saved_drop_list(freed);
	if (!generation) {
		free(block);
		goto no_memory;
	}
	if (bytes) {
		ret = memory_reserve(block->key, bytes, &block->fill, &has_store, why,
				     sizeof(why));
		if (ret)
			return put_failed(block, origin, ret, has_store, why, words);
	}
	*result = block;
	return 0;

no_memory:
	snprintf(words, SAVED_WORDS, "actmem: no memory for bookkeeping");
	return -ENOMEM;
}

void saved_filled(struct saved *block)
{
	int abandoned;

	/* Before others may drop it, which they leave to this thread until then. */
	if (block->bytes)
		memory_commit(block->key);
	block->fill = NULL;
	pthread_mutex_lock(&lock);
	block->filling = 0;
	abandoned = block->abandoned;
	pthread_mutex_unlock(&lock);
	if (abandoned)
		saved_drop(block);
}

static int explain_missing(uint64_t token, char *words)
{
	struct site *site = site_numbered(token >> SERIAL_BITS);
	uint64_t number = token & SERIAL_MASK;

	if (!site || !number || number > serial) {
		snprintf(words, SAVED_WORDS,
			 "actmem: token %#" PRIx64 " was not made by this process",
			 token);
		return -EINVAL;
	}
	if (site_remembers(site, number)) {
		snprintf(words, SAVED_WORDS,
			 "actmem: a value saved at %s was reclaimed, since more than %" PRIu64
			 " of its forward passes were unfinished; if they are meant to be, "
			 "raise the limit by actmem.jax.configure(generations=N) or "
			 "ACTMEM_JAX_GENERATIONS (0: no limit)",
			 site->name, counts.generations_max);
		return -ESTALE;
	}
	snprintf(words, SAVED_WORDS,
		 "actmem: a value saved at %s is wanted a second time, or after "
		 "actmem.jax.reset(); it can be read once: call a vjp function once for "
		 "each forward pass, and do not call inside a loop what does not depend on "
		 "the loop",
		 site->name);
	return -ENOENT;
}

/* Out of the table: the caller alone has it. */
static int claim(uint64_t token, uint64_t bytes, uint32_t device, int64_t run,
		 struct saved **result, char *words)
{
	struct saved *block;
	int ret = 0;

	pthread_mutex_lock(&lock);
	block = table_find(token);
	if (!block) {
		ret = explain_missing(token, words);
	} else if (block->bytes != bytes || block->device != device) {
		snprintf(words, SAVED_WORDS,
			 "actmem: the value saved at %s has %" PRIu64 " bytes on device %" PRIu32
			 ", but %" PRIu64 " bytes are wanted on device %" PRIu32,
			 block->generation->site->name, block->bytes,
			 block->device, bytes, device);
		ret = -EINVAL;
	} else {
		block_unlink(block);
		counts_take(device, bytes, run);
		*result = block;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

/* What was claimed could not be had, and is given up with its execution. */
static void lose(struct saved *block, int64_t run)
{
	pthread_mutex_lock(&lock);
	counts_take_failed(block->device, block->bytes, run);
	pthread_mutex_unlock(&lock);
	saved_drop(block);
}

int saved_claim(uint64_t token, uint64_t bytes, uint32_t device, int64_t run,
		struct saved **result, char *words)
{
	struct saved *block;
	int used, ret;

	ret = claim(token, bytes, device, run, &block, words);
	if (ret)
		return ret;
	if (bytes) {
		used = snprintf(words, SAVED_WORDS,
				"actmem: the %" PRIu64 " bytes saved at %s cannot be read back: ",
				bytes, saved_site_name(token));
		if (used >= SAVED_WORDS)
			used = 0;
		ret = memory_hold(block->key, &block->held, words + used,
				  SAVED_WORDS - (size_t)used);
		if (ret) {
			lose(block, run);
			return ret;
		}
	}
	*result = block;
	return 0;
}

void saved_release(struct saved *block)
{
	if (block->bytes)
		memory_release(block->key);
	free(block);
}

int saved_checksum(void)
{
	int on;

	pthread_mutex_lock(&lock);
	on = (int)counts.checksum;
	pthread_mutex_unlock(&lock);
	return on;
}

void saved_checksum_compared(void)
{
	pthread_mutex_lock(&lock);
	counts.checksums_total++;
	pthread_mutex_unlock(&lock);
}

const char *saved_site_name(uint64_t token)
{
	struct site *site;

	pthread_mutex_lock(&lock);
	site = site_numbered(token >> SERIAL_BITS);
	pthread_mutex_unlock(&lock);
	return site ? site->name : "?";
}

void actmem_xla_set_generations(uint64_t most)
{
	pthread_mutex_lock(&lock);
	counts.generations_max = most;
	pthread_mutex_unlock(&lock);
}

void actmem_xla_set_checksum(int on)
{
	pthread_mutex_lock(&lock);
	counts.checksum = !!on;
	pthread_mutex_unlock(&lock);
}

int actmem_xla_stats(struct actmem_xla_stats *stats)
{
	int ret;

	pthread_mutex_lock(&lock);
	ret = counts_copy(stats, stats->size, &counts, sizeof(counts));
	pthread_mutex_unlock(&lock);
	return ret;
}

int actmem_xla_device_stats(uint32_t device,
			    struct actmem_xla_device_stats *stats)
{
	int ret;

	if (device >= ACTMEM_XLA_DEVICES_MAX)
		return -ERANGE;
	pthread_mutex_lock(&lock);
	ret = counts_copy(stats, stats->size, &device_counts[device],
			  sizeof(device_counts[device]));
	pthread_mutex_unlock(&lock);
	return ret;
}

uint64_t actmem_xla_reset(void)
{
	struct saved *freed = NULL;
	uint64_t count = 0, i;
	struct site *site;

	pthread_mutex_lock(&lock);
	for (i = 0; (site = site_numbered(i)); i++)
		while (site->oldest)
			count += generation_abandon(site->oldest, &freed);
	counts.reset_blocks_total += count;
	pthread_mutex_unlock(&lock);
	saved_drop_list(freed);
	return count;
}
