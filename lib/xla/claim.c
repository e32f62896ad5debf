/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Claims blocks that a program takes, releases them, and holds the blocks to prefetch; see saved.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla/counts.h"
#include "xla/device_wait.h"
#include "xla/generation.h"
#include "xla/memory.h"
#include "xla/saved.h"
#include "xla/site.h"
#include "xla/table.h"

/*
 * Finds block @id, and waits until no thread is busy with the block. Drops the lock during the
 * wait. Returns NULL if there is no such block.
 */
static struct saved *find_idle(uint64_t id)
{
	struct saved *block = table_find(id);
	struct device_wait wait;
	bool is_told;

	if (!block || !block->busy)
		return block;
	/* Do not report the wait on a CPU, where it is as short as a copy. */
	is_told = block->is_gpu;
	if (is_told) {
		TRANSFER_COUNT(block->device, host_waits_total, 1);
		device_wait_begin(&wait, block->device, block->bytes, "a copy to the host of a value put at",
				  block->generation->site->name);
	}
	do {
		pthread_cond_wait(&saved_idle, &saved_lock);
		block = table_find(id);
	} while (block && block->busy);
	if (is_told)
		device_wait_end(&wait);
	return block;
}

/*
 * Returns advice for a value that was saved with the wrong sharding. The name of the value's site
 * shows whether actmem.optax saved the value.
 */
static const char *sharding_advice(const char *site)
{
	return strstr(site, " of the optimizer state") ?
		       "make the state by init() with parameters that have the sharding of the program's" :
		       "compute its gradient in the program that computed it";
}

static const char *device_kind(bool is_gpu)
{
	return is_gpu ? "GPU" : "CPU";
}

/*
 * Checks that @block contains @rows, whose length is @bytes. Also checks that @block matches the
 * device, sharding and shape of @taker.
 */
static int check_claim(const struct saved *block, const struct rows *rows, uint64_t bytes,
		       const struct origin *taker, char *words)
{
	const char *site = block->generation->site->name;

	if (rows->changed)
		return saved_fail(words, EINVAL,
				  "a function changed the numbers of a tree, but it could not change the value saved at %s, whose type JAX does not know: apply it to the result of value() (also jax.lax.stop_gradient in a branch), or to the loss; apply a function of gradients in the Optax transformation (optax.zero_nans() for jnp.nan_to_num), or pass gradients=\"device\" to actmem.jax.value_and_grad()",
				  site);
	if (block->device != taker->device || block->is_gpu != taker->is_gpu)
		return saved_fail(words, EINVAL, "the value saved at %s is on %s device %" PRIu32
				  ", but the program needs it on %s device %" PRIu32,
				  site, device_kind(block->is_gpu), block->device,
				  device_kind(taker->is_gpu), taker->device);
	if (block->layout != taker->layout) {
		return saved_fail(words, EINVAL,
				  "the value saved at %s was saved with another sharding than the program needs; %s",
				  site, sharding_advice(site));
	}
	if (block->shape.hash != taker->shape.hash || rows->first + rows->count > block->examples ||
	    bytes != block->bytes / block->examples * rows->count)
		return saved_fail(words, EINVAL,
				  "the value saved at %s is %" PRIu64 " of %s (%" PRIu64
				  " bytes), but the program needs %" PRIu64 " of %s (%" PRIu64
				  " bytes), from number %" PRIu64 " on",
				  site, block->examples, block->shape.text, block->bytes, rows->count,
				  taker->shape.text, bytes, rows->first);
	return 0;
}

/*
 * Claims a block. If the claim drops the block's last references, removes the block from the table.
 */
static int claim_block(const struct rows *rows, uint64_t bytes, const struct origin *taker,
		       struct claim *claim, char *words)
{
	struct saved *block;
	int error;

	pthread_mutex_lock(&saved_lock);
	block = find_idle(rows->id);
	error = block ? check_claim(block, rows, bytes, taker, words) :
		      saved_explain_missing(rows->id, words);
	if (!error) {
		claim->block = block;
		claim->offset = block->bytes / block->examples * rows->first;
		claim->ends = taker->ends && rows->count >= block->references;
		if (claim->ends)
			saved_unlink(block);
		else if (taker->ends)
			block->references -= rows->count;
		block->claims++;
	}
	pthread_mutex_unlock(&saved_lock);
	return error;
}

/*
 * Holds the memory of a claimed block, unless the device has the block. On failure, writes the
 * error message.
 */
static int hold_claimed(struct claim *claim, char *words)
{
	const struct saved *block = claim->block;
	const char *site = saved_site_name(block->token);
	char why[SAVED_WORDS];
	const void *memory;
	int error;

	if (block->failure)
		return saved_fail(words, -block->failure,
				  "the %" PRIu64 " bytes put at %s could not be copied: %s",
				  block->bytes, site, block->why ? block->why : "no memory for the reason");
	if (!block->bytes || block->staged)
		return 0;
	error = memory_hold(block->key, &memory, why, sizeof(why));
	if (error)
		return saved_fail(words, -error,
				  "the %" PRIu64 " bytes saved at %s cannot be read back: %s",
				  block->bytes, site, why);
	claim->memory = (const char *)memory + claim->offset;
	return 0;
}

int saved_claim(const struct rows *rows, uint64_t bytes, const struct origin *taker,
		struct claim **result, char *words)
{
	struct claim *claim;
	int error = saved_check(words);

	if (error)
		return error;
	claim = calloc(1, sizeof(*claim));
	if (!claim)
		return saved_fail(words, ENOMEM, "no memory for bookkeeping");
	error = claim_block(rows, bytes, taker, claim, words);
	if (error) {
		free(claim);
		return error;
	}
	error = hold_claimed(claim, words);
	pthread_mutex_lock(&saved_lock);
	if (!error)
		counts_take(taker->device, bytes, taker->run);
	else
		counts.lost_blocks_total++;
	/* Remove a block that cannot be read: the execution that needs it fails. */
	if (error && claim->block->generation)
		saved_unlink(claim->block);
	pthread_mutex_unlock(&saved_lock);
	if (error)
		saved_release(claim);
	else
		*result = claim;
	return error;
}

/*
 * After a block has left the table, the release of its last claim frees the block in the store. The
 * claim that dropped the last reference may have been released earlier.
 */
void saved_release(struct claim *claim)
{
	struct saved *block = claim->block;
	bool is_last, is_unused;

	pthread_mutex_lock(&saved_lock);
	is_last = !block->generation && block->claims == 1 && !block->busy;
	pthread_mutex_unlock(&saved_lock);
	if (claim->memory && is_last)
		memory_release(block->key);
	else if (claim->memory)
		memory_put_back(block->key);
	pthread_mutex_lock(&saved_lock);
	block->is_released |= claim->memory && is_last;
	block->claims--;
	is_unused = !block->generation && !saved_is_used(block);
	pthread_mutex_unlock(&saved_lock);
	if (is_unused)
		saved_drop(block);
	free(claim);
}

/* Returns the youngest block of @generation that no thread uses and that can be read ahead. */
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

struct saved *saved_next(uint32_t device, int64_t run, uint64_t bytes_max, const void **memory)
{
	char words[SAVED_WORDS];
	struct saved *block;

	pthread_mutex_lock(&saved_lock);
	block = youngest_on(device, run);
	if (block && block->bytes > bytes_max)
		block = NULL;
	if (block)
		block->busy = true;
	pthread_mutex_unlock(&saved_lock);
	if (block && memory_hold(block->key, memory, words, sizeof(words))) {
		saved_is_idle(block);
		return NULL;
	}
	return block;
}

void saved_staged(struct saved *block, void *staged, void (*unstage)(void *staged))
{
	pthread_mutex_lock(&saved_lock);
	block->staged = staged;
	block->unstage = unstage;
	pthread_mutex_unlock(&saved_lock);
	saved_is_idle(block);
}

void saved_not_staged(struct saved *block)
{
	memory_put_back(block->key);
	saved_is_idle(block);
}
