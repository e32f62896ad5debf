// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Foreseen blocks: a step takes what it put in the order of the step before. So it is known
 * which block a take wants before the device has come to its token, and the host need not
 * wait for that; see saved.h.
 *
 * Of each site and device the order is kept in which the last execution took its blocks,
 * by the numbers of their puts. Once an execution has taken them as the one before did, the
 * next one is foreseen, if its program says that nothing in it chooses what is put and
 * taken. All of an execution is foreseen, or nothing: its tokens are announced or not
 * (announce.c). It is foreseen no more once one of its blocks was not as foreseen. Then two
 * that are alike are waited for again.
 */
#include <stdlib.h>

#include "xla/counts.h"
#include "xla/generation.h"
#include "xla/memory.h"
#include "xla/saved.h"
#include "xla/site.h"
#include "xla/table.h"

/* How the blocks of a site were taken on a device. */
struct order {
	struct order *next;
	uint32_t device;
	int64_t run;			/* that takes now... */
	uint64_t at;			/* ...so many till now... */
	int differs;			/* ...and not as the one before */
	int is_known;			/* that one took as the one before it */
	uint64_t count, room;		/* of the one before, or of now where it differs */
	uint64_t *ordinals;
};

/* Of each device: the latest execution. */
static struct {
	int64_t run;
	int is_foreseen;
} plans[ACTMEM_XLA_DEVICES_MAX];

static struct order *order_of(const struct site *site, uint32_t device)
{
	struct order *order = site->orders;

	while (order && order->device != device)
		order = order->next;
	return order;
}

static void begin_order(struct order *order, int64_t run)
{
	order->is_known = order->at && !order->differs && order->at == order->count;
	order->count = order->at;
	order->at = 0;
	order->differs = 0;
	order->run = run;
}

void foresee_begin(struct site *site, const struct origin *origin)
{
	struct order *order = order_of(site, origin->device);

	if (!origin->is_gpu)
		return;
	if (plans[origin->device].run != origin->run) {
		plans[origin->device].run = origin->run;
		plans[origin->device].is_foreseen = 1;
	}
	if (!order) {
		order = calloc(1, sizeof(*order));
		if (order) {
			order->device = origin->device;
			order->run = origin->run;
			order->next = site->orders;
			site->orders = order;
		}
	} else if (order->run != origin->run) {
		begin_order(order, origin->run);
	}
	if (!order || !order->is_known || !origin->fixed || counts.checksum)
		plans[origin->device].is_foreseen = 0;
}

/* Without memory for it this order is never like another. */
static void add_ordinal(struct order *order, uint64_t ordinal)
{
	uint64_t room = order->room ? 2 * order->room : 16;
	uint64_t *more;

	if (order->at == order->room) {
		more = realloc(order->ordinals, room * sizeof(*more));
		if (!more)
			return;
		order->ordinals = more;
		order->room = room;
	}
	order->ordinals[order->at++] = ordinal;
}

void foresee_learn(const struct saved *block, const struct origin *taker)
{
	struct order *order = order_of(block->generation->site, block->device);

	if (!order || !block->is_gpu || !taker->ends || order->run != taker->run ||
	    block->run != taker->run)
		return;
	if (order->at < order->count && order->ordinals[order->at] == block->ordinal) {
		order->at++;
		return;
	}
	order->differs = 1;
	add_ordinal(order, block->ordinal);
}

static int is_foreseen(uint32_t device, int64_t run)
{
	return plans[device].is_foreseen && plans[device].run == run;
}

int saved_foresees(uint32_t device, int64_t run)
{
	int is;

	pthread_mutex_lock(&saved_lock);
	is = is_foreseen(device, run);
	pthread_mutex_unlock(&saved_lock);
	return is;
}

void saved_foresees_no_more(uint32_t device, int64_t run)
{
	pthread_mutex_lock(&saved_lock);
	if (plans[device].run == run)
		plans[device].is_foreseen = 0;
	pthread_mutex_unlock(&saved_lock);
}

void saved_unlearn(const struct saved *block)
{
	struct order *order;

	pthread_mutex_lock(&saved_lock);
	order = order_of(site_numbered(block->token >> SERIAL_BITS), block->device);
	if (order) {
		order->differs = 1;
		order->is_known = 0;
	}
	pthread_mutex_unlock(&saved_lock);
}

static struct saved *numbered(const struct site *site, const struct origin *taker,
			      uint64_t ordinal)
{
	const struct generation *generation = site->oldest;
	struct saved *block;

	while (generation && (generation->run != taker->run || !generation->is_gpu ||
			      generation->device != taker->device))
		generation = generation->next;
	block = generation ? generation->list : NULL;
	while (block && block->ordinal != ordinal)
		block = block->next;
	return block;
}

/* Nobody else has it, and its bytes are in memory, or come there by copies that have begun. */
static int can_be_taken(const struct saved *block, const struct origin *taker, uint64_t bytes)
{
	return block->bytes == bytes && block->layout == taker->layout && !block->many &&
	       !block->failure && !block->staged && !block->readers &&
	       block->examples == 1 && block->references == 1 &&
	       block->shape.hash == taker->shape.hash && (!block->busy || block->fill);
}

struct saved *saved_foresee(const struct origin *taker, uint64_t bytes, const void **memory,
			    int *is_filling)
{
	struct saved *block = NULL;
	char words[SAVED_WORDS];
	struct order *order;
	struct site *site;

	pthread_mutex_lock(&saved_lock);
	site = site_named(taker->site, taker->site_length);
	order = site ? order_of(site, taker->device) : NULL;
	if (order && order->is_known && order->run == taker->run && order->at < order->count &&
	    is_foreseen(taker->device, taker->run))
		block = numbered(site, taker, order->ordinals[order->at]);
	if (block && !can_be_taken(block, taker, bytes))
		block = NULL;
	if (block) {
		order->at++;
		*is_filling = block->busy;
		*memory = block->fill;
		saved_unlink(block);
		counts_take(block->device, bytes, taker->run);
	}
	pthread_mutex_unlock(&saved_lock);
	if (!block || *is_filling)
		return block;
	if (memory_hold(block->key, &block->held, words, sizeof(words))) {
		block->held = NULL;
		saved_return(block);
		return NULL;
	}
	*memory = block->held;
	return block;
}

void saved_foreseen(struct saved *block)
{
	char words[SAVED_WORDS];

	/* One that was being filled then was not held. */
	if (!block->failure && !block->held &&
	    memory_hold(block->key, &block->held, words, sizeof(words)))
		memory_drop(block->key);
	else if (!block->failure)
		memory_release(block->key);
	free(block->why);
	free(block);
}

void saved_return(struct saved *block)
{
	struct origin origin = {
		.run = block->run,
		.device = block->device,
		.is_gpu = block->is_gpu,
	};
	struct generation *generation = NULL;
	struct saved *freed = NULL;

	if (block->held)
		memory_put_back(block->key);
	block->held = NULL;
	pthread_mutex_lock(&saved_lock);
	if (!table_reserve())
		generation = saved_generation(site_numbered(block->token >> SERIAL_BITS), &origin,
					      &freed);
	if (generation) {
		if ((block->token & SERIAL_MASK) < generation->first)
			generation->first = block->token & SERIAL_MASK;
		if ((block->token & SERIAL_MASK) > generation->last)
			generation->last = block->token & SERIAL_MASK;
		saved_link(block, generation);
		counts_return(block->device, block->bytes, block->run);
	} else {
		block->abandoned = block->busy;
	}
	pthread_mutex_unlock(&saved_lock);
	if (!generation && !block->abandoned)
		saved_drop(block);
}
