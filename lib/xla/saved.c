/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The table of live blocks, and the generations that they belong to; see saved.h, generation.h. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "xla/actmem_xla.h"
#include "xla/counts.h"
#include "xla/forked.h"
#include "xla/generation.h"
#include "xla/memory.h"
#include "xla/own_memory.h"
#include "xla/saved.h"
#include "xla/site.h"
#include "xla/table.h"

_Static_assert(SERIAL_BITS == MEMORY_SITE_SHIFT, "tokens and names must have the site at the same bit");
_Static_assert(ACTMEM_XLA_DEVICES_MAX <= MEMORY_DEVICE_MASK + 1, "a name must have enough bits for a device");

pthread_mutex_t saved_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t saved_idle = PTHREAD_COND_INITIALIZER;
uint64_t saved_serial;

static bool saved_is_free(void)
{
	return forked_lock_is_free(&saved_lock);
}
FORKED_WATCH(saved_is_free)

int saved_check(char *words)
{
	const char *prefix = "actmem: ";
	size_t length = strlen(prefix);

	memcpy(words, prefix, length);
	return forked_check(words + length, SAVED_WORDS - length);
}

int saved_fail(char *words, int error, const char *format, ...)
{
	size_t used = strlen(strcpy(words, "actmem: "));
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(words + used, SAVED_WORDS - used, format, arguments);
	va_end(arguments);
	return -error;
}

void saved_unannounce(struct saved *block)
{
	if (!block->announced_link)
		return;
	*block->announced_link = block->announced_next;
	if (block->announced_next)
		block->announced_next->announced_link = block->announced_link;
	block->announced_link = NULL;
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

void saved_unlink(struct saved *block)
{
	struct generation *generation = block->generation;

	table_remove(block);
	saved_unannounce(block);
	*block->link = block->next;
	if (block->next)
		block->next->link = block->link;
	counts_end(block->device, block->bytes);
	block->generation = NULL;
	if (!--generation->blocks)
		generation_end(generation);
}

/*
 * Removes the blocks of @generation from the table, except kept blocks, and adds the removed blocks
 * to *@freed. A block that a thread uses is not added to *@freed: that thread frees the block. The
 * generation ends if no block is left. Returns the number of blocks that left the table.
 */
static uint64_t generation_abandon(struct generation *generation,
				   struct saved **freed)
{
	struct saved *block, *next;
	uint64_t count = 0;

	for (block = generation->list; block; block = next) {
		next = block->next;
		if (block->is_kept)
			continue;
		count++;
		saved_unlink(block);
		if (!saved_is_used(block)) {
			block->next = *freed;
			*freed = block;
		}
	}
	return count;
}

void saved_drop(struct saved *block)
{
	if (block->staged)
		block->unstage(block->staged);
	else if (block->bytes && !block->failure && !block->is_released)
		memory_drop(block->key);
	free(block->why);
	free(block);
}

static void drop_list(struct saved *list)
{
	struct saved *block;

	while ((block = list)) {
		list = block->next;
		saved_drop(block);
	}
}

static bool is_on_device_of(const struct generation *generation, const struct origin *origin)
{
	return generation->device == origin->device && generation->is_gpu == origin->is_gpu;
}

static struct generation *site_oldest(const struct site *site, const struct origin *origin,
				      uint64_t *count)
{
	struct generation *generation, *oldest = NULL;

	*count = 0;
	for (generation = site->oldest; generation; generation = generation->next) {
		if (!is_on_device_of(generation, origin))
			continue;
		if (!oldest)
			oldest = generation;
		++*count;
	}
	return oldest;
}

/* Reclaims the oldest generations until @site may begin a new one on the device of @origin. */
static void site_reclaim(struct site *site, const struct origin *origin,
			   struct saved **freed)
{
	struct generation *oldest;
	uint64_t count, before;

	while (counts.generations_max) {
		oldest = site_oldest(site, origin, &count);
		if (count < counts.generations_max)
			break;
		site_remember(site, oldest->first, oldest->last);
		before = counts.live_bytes;
		counts.reclaimed_blocks_total += generation_abandon(oldest, freed);
		counts.reclaimed_bytes_total += before - counts.live_bytes;
	}
}

/*
 * Returns the generation of @site that gets the block of actmem_put's call @origin, or NULL if
 * there is no memory for the generation. Adds the blocks that a new generation reclaims to *@freed.
 */
static struct generation *site_generation(struct site *site, const struct origin *origin,
					  struct saved **freed)
{
	struct generation **link, *generation;

	for (generation = site->oldest; generation; generation = generation->next)
		if (generation->run == origin->run && is_on_device_of(generation, origin))
			return generation;
	if (origin->bounded)
		site_reclaim(site, origin, freed);
	generation = calloc(1, sizeof(*generation));
	if (!generation)
		return NULL;
	generation->run = origin->run;
	generation->device = origin->device;
	generation->is_gpu = origin->is_gpu;
	generation->site = site;
	generation->first = saved_serial + 1;
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
		.name = memory_name(generation->site->number, block->device, block->is_gpu,
				    generation->puts),
		.instance = block->token | ACTMEM_INSTANCE_ONCE,
	};

	return key;
}

static void block_link(struct saved *block, struct generation *generation)
{
	generation->last = ++saved_serial;
	block->token = generation->site->number << SERIAL_BITS | saved_serial;
	block->key = key_of(block, generation);
	generation->puts++;
	block->generation = generation;
	table_add(block);
	block->next = generation->list;
	block->link = &generation->list;
	if (block->next)
		block->next->link = &block->next;
	generation->list = block;
	generation->blocks++;
	counts_begin(block->device, block->bytes);
}

/* Returns true if another execution has live blocks. */
static bool others_are_unfinished(int64_t run)
{
	struct generation *generation;
	struct site *site;
	uint64_t i;

	for (i = 0; (site = site_numbered(i)); i++)
		for (generation = site->oldest; generation; generation = generation->next)
			if (generation->run != run)
				return true;
	return false;
}

/* Gives up @block, whose memory could not be reserved, and writes the error message to @words. */
static int put_failed(struct saved *block, const struct origin *origin, int error, bool has_store,
		      const char *why, char *words)
{
	const char *others = "";
	char what[64] = "nothing can be saved";

	pthread_mutex_lock(&saved_lock);
	if (block->generation)
		saved_unlink(block);
	if (is_out_of_memory(error) && others_are_unfinished(origin->run))
		others = "; other unfinished forward passes use memory: if they failed, actmem.jax.reset() frees it";
	pthread_mutex_unlock(&saved_lock);
	if (has_store)
		snprintf(what, sizeof(what), "no memory for a block of %" PRIu64 " bytes",
			 block->bytes);
	free(block);
	return saved_fail(words, -error, "%s at %.*s: %s%s", what, (int)origin->site_length,
			  origin->site, why, others);
}

int saved_begin(const struct origin *origin, uint64_t bytes,
		struct saved **result, char *words)
{
	struct generation *generation = NULL;
	struct saved *block, *freed = NULL;
	char why[SAVED_WORDS];
	struct site *site;
	bool has_store;
	int error = saved_check(words);

	if (error)
		return error;
	if (origin->device >= ACTMEM_XLA_DEVICES_MAX)
		return saved_fail(words, ERANGE,
				  "the process uses device %" PRIu32 ", but only %d devices are supported",
				  origin->device, ACTMEM_XLA_DEVICES_MAX);
	block = calloc(1, sizeof(*block));
	if (!block)
		goto no_memory;
	block->bytes = bytes;
	block->device = origin->device;
	block->is_gpu = origin->is_gpu;
	block->busy = true;
	block->many = origin->many;
	block->examples = origin->examples;
	block->references = origin->examples;
	block->shape = origin->shape;
	block->layout = origin->layout;
	block->run = origin->run;
	/*
	 * Find the generation before the memory is reserved. site_generation() may reclaim older
	 * blocks, and the new block may need their memory.
	 */
	pthread_mutex_lock(&saved_lock);
	site = table_reserve() ? NULL :
	       site_named(origin->site, origin->site_length);
	if (site)
		generation = site_generation(site, origin, &freed);
	if (generation)
		block_link(block, generation);
	pthread_mutex_unlock(&saved_lock);
	drop_list(freed);
	if (!generation) {
		free(block);
		goto no_memory;
	}
	if (bytes) {
		error = memory_reserve(block->key, bytes, &block->fill, &has_store, why,
				     sizeof(why));
		if (error)
			return put_failed(block, origin, error, has_store, why, words);
	}
	pthread_mutex_lock(&saved_lock);
	counts_put(origin->device, bytes, origin->run);
	pthread_mutex_unlock(&saved_lock);
	*result = block;
	return 0;

no_memory:
	return saved_fail(words, ENOMEM, "no memory for bookkeeping");
}

void saved_is_idle(struct saved *block)
{
	bool is_unused;

	pthread_mutex_lock(&saved_lock);
	block->busy = false;
	block->fill = NULL;
	is_unused = !block->generation && !saved_is_used(block);
	pthread_cond_broadcast(&saved_idle);
	pthread_mutex_unlock(&saved_lock);
	if (is_unused)
		saved_drop(block);
}

void saved_filled(struct saved *block)
{
	/* Commit while the block is still busy, because no other thread drops a busy block. */
	if (block->bytes)
		memory_commit(block->key);
	saved_is_idle(block);
}

void saved_failed(struct saved *block, int error, const char *why)
{
	if (block->fill)
		memory_drop(block->key);
	block->failure = error;
	block->why = strdup(why);
	saved_is_idle(block);
}

void saved_undo(struct saved *block)
{
	pthread_mutex_lock(&saved_lock);
	counts.lost_blocks_total++;
	if (block->generation)
		saved_unlink(block);
	pthread_cond_broadcast(&saved_idle);
	pthread_mutex_unlock(&saved_lock);
	saved_drop(block);
}

int saved_look(uint64_t id, struct saved_look *look, char *words)
{
	const struct saved *block;
	int error = 0;

	pthread_mutex_lock(&saved_lock);
	block = table_find(id);
	if (block)
		*look = (struct saved_look){ .shape = block->shape, .layout = block->layout,
					     .bytes = block->bytes / block->examples };
	else
		error = saved_explain_missing(id, words);
	pthread_mutex_unlock(&saved_lock);
	return error;
}

void saved_reference(uint64_t id, uint64_t count)
{
	struct saved *block;

	pthread_mutex_lock(&saved_lock);
	block = table_find(id);
	if (block)
		block->references += count;
	pthread_mutex_unlock(&saved_lock);
}

void saved_unreference(uint64_t id, uint64_t count)
{
	struct saved *block;
	bool is_used = false;

	pthread_mutex_lock(&saved_lock);
	block = table_find(id);
	if (block && block->references > count) {
		block->references -= count;
		block = NULL;
	}
	if (block) {
		counts.dropped_blocks_total++;
		saved_unlink(block);
		is_used = saved_is_used(block);
	}
	pthread_mutex_unlock(&saved_lock);
	if (block && !is_used)
		saved_drop(block);
}

int saved_explain_missing(uint64_t token, char *words)
{
	struct site *site = site_numbered(token >> SERIAL_BITS);
	uint64_t number = token & SERIAL_MASK;

	if (!site || !number || number > saved_serial)
		return saved_fail(words, EINVAL, "token %#" PRIx64 " was not made by this process",
				  token);
	if (site_remembers(site, number)) {
		return saved_fail(words, ESTALE,
				  "a value saved at %s was reclaimed, because more than %" PRIu64
				  " forward passes through this place were unfinished; if the program needs this many, raise the limit by actmem.jax.configure(generations=N) or ACTMEM_JAX_GENERATIONS (0: no limit)",
				  site->name, counts.generations_max);
	}
	return saved_fail(words, ENOENT,
			  "a value saved at %s was requested after its last use, or after actmem.jax.reset()",
			  site->name);
}

const char *saved_site_name(uint64_t token)
{
	struct site *site;

	pthread_mutex_lock(&saved_lock);
	site = site_numbered(token >> SERIAL_BITS);
	pthread_mutex_unlock(&saved_lock);
	return site ? site->name : "?";
}

int actmem_xla_set_generations(uint64_t most)
{
	if (is_forked())
		return -EOWNERDEAD;
	pthread_mutex_lock(&saved_lock);
	counts.generations_max = most;
	pthread_mutex_unlock(&saved_lock);
	return 0;
}

int actmem_xla_set_checksum(int on)
{
	if (is_forked())
		return -EOWNERDEAD;
	pthread_mutex_lock(&saved_lock);
	counts.checksum = !!on;
	pthread_mutex_unlock(&saved_lock);
	memory_set_checksum(on);
	return 0;
}

int actmem_xla_stats(struct actmem_xla_stats *stats)
{
	struct actmem_store_stats store;
	int error;

	ACTMEM_INIT(&store);
	error = actmem_xla_store_stats(&store);
	if (error)
		return error;
	pthread_mutex_lock(&saved_lock);
	counts.checksums_total = store.checksums_total;
	own_memory_count(&counts);
	error = counts_copy(stats, stats->size, &counts, sizeof(counts));
	pthread_mutex_unlock(&saved_lock);
	return error;
}

int actmem_xla_device_stats(uint32_t device,
			    struct actmem_xla_device_stats *stats)
{
	int error;

	if (device >= ACTMEM_XLA_DEVICES_MAX)
		return -ERANGE;
	if (is_forked())
		return -EOWNERDEAD;
	pthread_mutex_lock(&saved_lock);
	error = counts_copy(stats, stats->size, &device_counts[device],
			  sizeof(device_counts[device]));
	pthread_mutex_unlock(&saved_lock);
	return error;
}

static void mark_kept(const uint64_t *ids, size_t count, bool is_kept)
{
	struct saved *block;
	size_t i;

	for (i = 0; i < count; i++) {
		block = table_find(ids[i]);
		if (block)
			block->is_kept = is_kept;
	}
}

uint64_t actmem_xla_reset(const uint64_t *kept, size_t kept_count)
{
	struct generation *generation, *next;
	struct saved *freed = NULL;
	uint64_t count = 0, i;
	struct site *site;

	if (is_forked())
		return 0;
	pthread_mutex_lock(&saved_lock);
	mark_kept(kept, kept_count, true);
	for (i = 0; (site = site_numbered(i)); i++) {
		for (generation = site->oldest; generation; generation = next) {
			next = generation->next;
			count += generation_abandon(generation, &freed);
		}
	}
	mark_kept(kept, kept_count, false);
	counts.reset_blocks_total += count;
	pthread_mutex_unlock(&saved_lock);
	drop_list(freed);
	return count;
}
