// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The table of live blocks and the generations they belong to; see blocks.h.
 *
 * One mutex guards all of it: it is held for tens of nanoseconds per put or
 * take, never while memory is copied, allocated or freed.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actmem_xla.h"
#include "blocks.h"
#include "memory.h"

/*
 * A token is the number of its site in the upper bits and a serial number
 * that never comes again in the lower ones, so that the site of a token that
 * is in no table any more can still be told.
 */
#define SERIAL_BITS	40
#define SERIAL_MASK	((UINT64_C(1) << SERIAL_BITS) - 1)
#define SITES_MAX	(UINT64_C(1) << (64 - SERIAL_BITS))

#define HASH_START	1024	/* a power of two */
#define REMEMBERED	8	/* reclaimed generations of a site */

struct generation {
	int64_t run;
	uint32_t device;
	uint64_t first, last;		/* serial numbers of its blocks */
	uint64_t blocks;		/* live ones */
	struct block *list;
	struct site *site;
	struct generation *next;	/* younger */
};

struct site {
	char *name;
	size_t name_length;
	uint64_t number;
	struct generation *oldest;
	struct { uint64_t first, last; } reclaimed[REMEMBERED];
	unsigned int reclaimed_next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct block **hash;
static uint64_t hash_size;
static struct site **sites;
static uint64_t sites_count;
static uint64_t serial;

static struct actmem_xla_stats counts = {
	.generations_max = ACTMEM_XLA_GENERATIONS,
};
static struct actmem_xla_device_stats devices[ACTMEM_XLA_DEVICES_MAX];
static int64_t last_put_run = -1;
static int64_t last_take_run = -1;

static struct block **hash_slot(uint64_t token)
{
	return &hash[token & (hash_size - 1)];
}

/* Keeps chains short. Without memory for more slots they just grow longer. */
static int hash_reserve(void)
{
	uint64_t size = hash_size ? 2 * hash_size : HASH_START, old_size, i;
	struct block **old = hash, **fresh, *block, *next;

	if (hash_size && counts.live_blocks < hash_size)
		return 0;
	fresh = calloc(size, sizeof(*fresh));
	if (!fresh)
		return hash_size ? 0 : -ENOMEM;
	old_size = hash_size;
	hash = fresh;
	hash_size = size;
	for (i = 0; i < old_size; i++) {
		for (block = old[i]; block; block = next) {
			next = block->hash_next;
			block->hash_next = *hash_slot(block->token);
			*hash_slot(block->token) = block;
		}
	}
	free(old);
	return 0;
}

static struct site *site_find(const struct origin *origin)
{
	struct site **more, *site;
	uint64_t i;

	/* From the newest: those of a program that runs, not of one that ran. */
	for (i = sites_count; i-- > 0; ) {
		site = sites[i];
		if (site->name_length == origin->site_length &&
		    !memcmp(site->name, origin->site, origin->site_length))
			return site;
	}
	if (sites_count == SITES_MAX)
		return NULL;
	more = realloc(sites, (sites_count + 1) * sizeof(*sites));
	if (!more)
		return NULL;
	sites = more;
	site = calloc(1, sizeof(*site));
	if (!site)
		return NULL;
	site->name = strndup(origin->site, origin->site_length);
	if (!site->name) {
		free(site);
		return NULL;
	}
	site->name_length = origin->site_length;
	site->number = sites_count;
	sites[sites_count++] = site;
	return site;
}

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
static void block_unlink(struct block *block)
{
	struct generation *generation = block->generation;
	struct block **link = hash_slot(block->token);

	while (*link != block)
		link = &(*link)->hash_next;
	*link = block->hash_next;
	*block->link = block->next;
	if (block->next)
		block->next->link = block->link;
	counts.live_blocks--;
	counts.live_bytes -= block->bytes;
	devices[block->device].live_bytes -= block->bytes;
	block->generation = NULL;
	if (!--generation->blocks)
		generation_end(generation);
}

/*
 * Moves all blocks of @generation, which ends by it, onto *@freed; those
 * still being filled are freed by their filler instead.
 */
static uint64_t generation_abandon(struct generation *generation,
				   struct block **freed)
{
	uint64_t left = generation->blocks, count = left;
	struct block *block;

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

static void blocks_free_list(struct block *list)
{
	struct block *next;

	for (; list; list = next) {
		next = list->next;
		blocks_release(list);
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
			   struct block **freed)
{
	struct generation *oldest;
	uint64_t count, before;

	while (counts.generations_max) {
		oldest = site_oldest(site, device, &count);
		if (count < counts.generations_max)
			break;
		site->reclaimed[site->reclaimed_next].first = oldest->first;
		site->reclaimed[site->reclaimed_next].last = oldest->last;
		site->reclaimed_next = (site->reclaimed_next + 1) % REMEMBERED;
		before = counts.live_bytes;
		counts.reclaimed_blocks_total += generation_abandon(oldest, freed);
		counts.reclaimed_bytes_total += before - counts.live_bytes;
	}
}

static struct generation *generation_find(struct site *site,
					  const struct origin *origin,
					  struct block **freed)
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

static void raise_to(uint64_t *peak, uint64_t value)
{
	if (*peak < value)
		*peak = value;
}

static void block_link(struct block *block, struct generation *generation)
{
	struct actmem_xla_device_stats *device = &devices[block->device];

	generation->last = ++serial;
	block->token = generation->site->number << SERIAL_BITS | serial;
	block->generation = generation;
	block->hash_next = *hash_slot(block->token);
	*hash_slot(block->token) = block;
	block->next = generation->list;
	block->link = &generation->list;
	if (block->next)
		block->next->link = &block->next;
	generation->list = block;
	generation->blocks++;

	counts.live_blocks++;
	counts.live_bytes += block->bytes;
	raise_to(&counts.live_bytes_peak, counts.live_bytes);
	device->live_bytes += block->bytes;
	raise_to(&device->live_bytes_peak, device->live_bytes);
	counts.puts_total++;
	counts.put_bytes_total += block->bytes;
	device->put_bytes_total += block->bytes;
	if (last_put_run != generation->run) {
		last_put_run = generation->run;
		counts.last_run_put_bytes = 0;
	}
	counts.last_run_put_bytes += block->bytes;
}

int blocks_begin(const struct origin *origin, uint64_t bytes,
		 struct block **result, char *words)
{
	struct generation *generation = NULL;
	struct block *block, *freed = NULL;
	struct site *site;
	int used;
	int ret;

	if (origin->device >= ACTMEM_XLA_DEVICES_MAX) {
		snprintf(words, BLOCKS_WORDS,
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
	site = hash_reserve() ? NULL : site_find(origin);
	if (site)
		generation = generation_find(site, origin, &freed);
	if (generation)
		block_link(block, generation);
	pthread_mutex_unlock(&lock);
	blocks_free_list(freed);
	if (!generation) {
		free(block);
		goto no_memory;
	}
	if (bytes) {
		used = snprintf(words, BLOCKS_WORDS,
				"actmem: no memory for a block of %" PRIu64 " bytes at %.*s: ",
				bytes, (int)origin->site_length, origin->site);
		if (used >= BLOCKS_WORDS)
			used = 0;
		ret = memory_alloc(bytes, &block->data, words + used,
				   BLOCKS_WORDS - (size_t)used);
		if (ret) {
			pthread_mutex_lock(&lock);
			counts.puts_total--;
			counts.put_bytes_total -= bytes;
			devices[block->device].put_bytes_total -= bytes;
			if (last_put_run == origin->run)
				counts.last_run_put_bytes -= bytes;
			if (!block->abandoned)
				block_unlink(block);
			pthread_mutex_unlock(&lock);
			free(block);
			return ret;
		}
	}
	*result = block;
	return 0;

no_memory:
	snprintf(words, BLOCKS_WORDS, "actmem: no memory for bookkeeping");
	return -ENOMEM;
}

void blocks_filled(struct block *block)
{
	int abandoned;

	pthread_mutex_lock(&lock);
	block->filling = 0;
	abandoned = block->abandoned;
	pthread_mutex_unlock(&lock);
	if (abandoned)
		blocks_release(block);
}

static int was_reclaimed(const struct site *site, uint64_t number)
{
	int i;

	for (i = 0; i < REMEMBERED; i++)
		if (site->reclaimed[i].first <= number &&
		    number <= site->reclaimed[i].last)
			return 1;
	return 0;
}

static int explain_missing(uint64_t token, char *words)
{
	uint64_t number = token >> SERIAL_BITS;

	if (number >= sites_count || !(token & SERIAL_MASK) ||
	    (token & SERIAL_MASK) > serial) {
		snprintf(words, BLOCKS_WORDS,
			 "actmem: token %#" PRIx64 " was not made by this process",
			 token);
		return -EINVAL;
	}
	if (was_reclaimed(sites[number], token & SERIAL_MASK)) {
		snprintf(words, BLOCKS_WORDS,
			 "actmem: a value saved at %s was reclaimed, since more than %" PRIu64
			 " of its forward passes were unfinished; if they are meant to be, "
			 "raise the limit by actmem.jax.configure(generations=N) or "
			 "ACTMEM_JAX_GENERATIONS (0: no limit)",
			 sites[number]->name, counts.generations_max);
		return -ESTALE;
	}
	snprintf(words, BLOCKS_WORDS,
		 "actmem: a value saved at %s is wanted a second time, or after "
		 "actmem.jax.reset(); it can be read once: call a vjp function once for "
		 "each forward pass, and do not call inside a loop what does not depend on "
		 "the loop",
		 sites[number]->name);
	return -ENOENT;
}

int blocks_claim(uint64_t token, uint64_t bytes, uint32_t device, int64_t run,
		 struct block **result, char *words)
{
	struct block *block = NULL;
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (hash_size)
		for (block = *hash_slot(token); block; block = block->hash_next)
			if (block->token == token)
				break;
	if (!block) {
		ret = explain_missing(token, words);
	} else if (block->bytes != bytes || block->device != device) {
		snprintf(words, BLOCKS_WORDS,
			 "actmem: the value saved at %s has %" PRIu64 " bytes on device %" PRIu32
			 ", but %" PRIu64 " bytes are wanted on device %" PRIu32,
			 block->generation->site->name, block->bytes,
			 block->device, bytes, device);
		ret = -EINVAL;
	} else {
		block_unlink(block);
		counts.takes_total++;
		counts.take_bytes_total += bytes;
		devices[device].take_bytes_total += bytes;
		if (last_take_run != run) {
			last_take_run = run;
			counts.last_run_take_bytes = 0;
		}
		counts.last_run_take_bytes += bytes;
		*result = block;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

void blocks_release(struct block *block)
{
	if (block->data)
		memory_free(block->data);
	free(block);
}

int blocks_checksum(void)
{
	int on;

	pthread_mutex_lock(&lock);
	on = (int)counts.checksum;
	pthread_mutex_unlock(&lock);
	return on;
}

void blocks_checksum_compared(void)
{
	pthread_mutex_lock(&lock);
	counts.checksums_total++;
	pthread_mutex_unlock(&lock);
}

const char *blocks_site_name(uint64_t token)
{
	const char *name = "?";

	pthread_mutex_lock(&lock);
	if (token >> SERIAL_BITS < sites_count)
		name = sites[token >> SERIAL_BITS]->name;
	pthread_mutex_unlock(&lock);
	return name;
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

/* Writes no more than the caller was compiled with. */
static int copy_out(void *to, size_t to_size, const void *from, size_t size)
{
	if (to_size <= sizeof(size_t))
		return -EINVAL;
	if (to_size < size)
		size = to_size;
	memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t),
	       size - sizeof(size_t));
	return 0;
}

int actmem_xla_stats(struct actmem_xla_stats *stats)
{
	int ret;

	pthread_mutex_lock(&lock);
	ret = copy_out(stats, stats->size, &counts, sizeof(counts));
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
	ret = copy_out(stats, stats->size, &devices[device], sizeof(*devices));
	pthread_mutex_unlock(&lock);
	return ret;
}

uint64_t actmem_xla_reset(void)
{
	struct block *freed = NULL;
	uint64_t count = 0, i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < sites_count; i++)
		while (sites[i]->oldest)
			count += generation_abandon(sites[i]->oldest, &freed);
	counts.reset_blocks_total += count;
	pthread_mutex_unlock(&lock);
	blocks_free_list(freed);
	return count;
}
