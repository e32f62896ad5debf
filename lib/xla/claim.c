// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The table of live blocks: what is taken from it, and read ahead of that; see
 * saved.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "xla/counts.h"
#include "xla/device_wait.h"
#include "xla/generation.h"
#include "xla/memory.h"
#include "xla/saved.h"
#include "xla/site.h"
#include "xla/table.h"

int saved_explain_missing(uint64_t token, char *words)
{
	struct site *site = site_numbered(token >> SERIAL_BITS);
	uint64_t number = token & SERIAL_MASK;

	if (!site || !number || number > saved_serial) {
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
		 "actmem: a value saved at %s is wanted after its last take, or after "
		 "actmem.jax.reset()",
		 site->name);
	return -ENOENT;
}

static int is_in_the_way(const struct saved *block, int ends)
{
	return block->busy || (ends && block->readers);
}

/* Waits until nobody is in the way of such a take; without the lock. NULL: no block. */
static struct saved *find_idle(uint64_t token, int ends)
{
	struct saved *block = table_find(token);
	struct device_wait wait;
	int is_told;

	if (!block || !is_in_the_way(block, ends))
		return block;
	/* A CPU's thread is at it for as long as it copies. */
	is_told = block->is_gpu;
	if (is_told) {
		TRANSFER_COUNT(block->device, host_waits_total, 1);
		device_wait_begin(&wait, block->device, block->bytes, "a value on its way, put at",
				  block->generation->site->name);
	}
	do {
		pthread_cond_wait(&saved_idle, &saved_lock);
		block = table_find(token);
	} while (block && is_in_the_way(block, ends));
	if (is_told)
		device_wait_end(&wait);
	return block;
}

static const char *kind_of_device(int is_gpu)
{
	return is_gpu ? "GPU" : "CPU";
}

/* Takes a block out of the table, for the caller alone, or adds a reader to it. */
static int claim_block(uint64_t token, uint64_t bytes, const struct origin *taker,
		       struct saved **result, char *words)
{
	struct saved *block;
	int ret = 0;

	pthread_mutex_lock(&saved_lock);
	block = find_idle(token, taker->ends);
	if (!block) {
		ret = saved_explain_missing(token, words);
	} else if (block->bytes != bytes || block->device != taker->device ||
		   block->is_gpu != taker->is_gpu) {
		snprintf(words, SAVED_WORDS,
			 "actmem: the value saved at %s has %" PRIu64 " bytes on %s device %" PRIu32
			 ", but %" PRIu64 " bytes are wanted on %s device %" PRIu32,
			 block->generation->site->name, block->bytes,
			 kind_of_device(block->is_gpu), block->device, bytes,
			 kind_of_device(taker->is_gpu), taker->device);
		ret = -EINVAL;
	} else if (block->layout != taker->layout) {
		snprintf(words, SAVED_WORDS,
			 "actmem: the value saved at %s was spread over devices otherwise than "
			 "it is wanted; compute its gradient in the program that computed it",
			 block->generation->site->name);
		ret = -EINVAL;
	} else {
		if (taker->site)
			foresee_learn(block, taker);
		if (taker->ends)
			saved_unlink(block);
		else if (!block->readers++)
			block->busy = 1;	/* until it is held */
		counts_take(taker->device, bytes, taker->run);
		*result = block;
	}
	pthread_mutex_unlock(&saved_lock);
	return ret;
}

/* The claimed block could not be had, and is given up with its execution. */
static void lose_block(struct saved *block, int64_t run)
{
	int is_used;

	pthread_mutex_lock(&saved_lock);
	counts_take_failed(block->device, block->bytes, run);
	if (block->readers) {
		block->readers--;
		block->busy = 0;
		if (!block->abandoned)
			saved_unlink(block);
		pthread_cond_broadcast(&saved_idle);
	}
	is_used = saved_is_used(block);
	block->abandoned = is_used;
	pthread_mutex_unlock(&saved_lock);
	if (!is_used)
		saved_drop(block);
}

/* A block read by the first of several is held: others may read it, too. */
static void set_held(struct saved *block)
{
	pthread_mutex_lock(&saved_lock);
	if (block->readers) {
		block->busy = 0;
		pthread_cond_broadcast(&saved_idle);
	}
	pthread_mutex_unlock(&saved_lock);
}

/* The last of several readers is done. */
static void put_block_back(struct saved *block)
{
	if (block->held)
		memory_put_back(block->key);
	block->held = NULL;
	saved_is_idle(block);
}

int saved_claim(uint64_t token, uint64_t bytes, const struct origin *taker,
		struct saved **result, char *words)
{
	struct saved *block = NULL;
	int used, ret = saved_check(words);

	if (ret)
		return ret;
	ret = claim_block(token, bytes, taker, &block, words);
	if (ret)
		return ret;
	if (block->failure) {
		ret = block->failure;
		snprintf(words, SAVED_WORDS,
			 "actmem: the %" PRIu64 " bytes put at %s never got here: %s", bytes,
			 saved_site_name(token), block->why ? block->why : "no memory for words");
		lose_block(block, taker->run);
		return ret;
	}
	if (bytes && !block->staged && !block->held) {
		used = snprintf(words, SAVED_WORDS,
				"actmem: the %" PRIu64 " bytes saved at %s cannot be read back: ",
				bytes, saved_site_name(token));
		if (used >= SAVED_WORDS)
			used = 0;
		ret = memory_hold(block->key, &block->held, words + used,
				  SAVED_WORDS - (size_t)used);
		if (ret) {
			lose_block(block, taker->run);
			return ret;
		}
	}
	set_held(block);
	*result = block;
	return 0;
}

void saved_release(struct saved *block)
{
	unsigned int readers, left = 0;

	pthread_mutex_lock(&saved_lock);
	readers = block->readers;
	if (readers) {
		left = --block->readers;
		if (!left)
			block->busy = 1;
	}
	pthread_mutex_unlock(&saved_lock);
	if (readers) {
		if (!left)
			put_block_back(block);
		return;
	}
	if (block->staged)
		block->unstage(block->staged);
	else if (block->bytes)
		memory_release(block->key);
	free(block);
}

void saved_is_idle(struct saved *block)
{
	int abandoned;

	pthread_mutex_lock(&saved_lock);
	block->busy = 0;
	block->fill = NULL;
	abandoned = block->abandoned;
	pthread_cond_broadcast(&saved_idle);
	pthread_mutex_unlock(&saved_lock);
	if (abandoned)
		saved_drop(block);
}

/* The youngest block of @generation that nobody uses, and that was not read ahead. */
static struct saved *youngest_of(const struct generation *generation)
{
	struct saved *block = generation->list;

	while (block && (saved_is_used(block) || block->many || block->staged ||
			 block->failure || !block->bytes))
		block = block->next;
	return block;
}

static struct saved *youngest_on(uint32_t device, int64_t run)
{
	struct saved *found = NULL, *block;
	struct generation *generation;
	struct site *site;
	uint64_t i;

	for (i = 0; (site = site_numbered(i)); i++) {
		for (generation = site->oldest; generation; generation = generation->next) {
			if (generation->run != run || generation->device != device ||
			    !generation->is_gpu)
				continue;
			block = youngest_of(generation);
			if (block && (!found || (found->token & SERIAL_MASK) <
						(block->token & SERIAL_MASK)))
				found = block;
		}
	}
	return found;
}

struct saved *saved_next(uint32_t device, int64_t run, uint64_t bytes_max)
{
	char words[SAVED_WORDS];
	struct saved *block;

	pthread_mutex_lock(&saved_lock);
	block = youngest_on(device, run);
	if (block && block->bytes > bytes_max)
		block = NULL;
	if (block)
		block->busy = 1;
	pthread_mutex_unlock(&saved_lock);
	/* Its take will tell the error. */
	if (block && memory_hold(block->key, &block->held, words, sizeof(words))) {
		block->held = NULL;
		saved_is_idle(block);
		return NULL;
	}
	return block;
}

void saved_staged(struct saved *block, void *staged, void (*unstage)(void *staged))
{
	block->held = NULL;
	block->staged = staged;
	block->unstage = unstage;
	saved_is_idle(block);
}

void saved_not_staged(struct saved *block)
{
	memory_put_back(block->key);
	block->held = NULL;
	saved_is_idle(block);
}
