/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes the waits of this process.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "watch/sequence.h"
#include "watch/waits.h"

static struct published_wait *take_place(struct published_waits *waits)
{
	unsigned int i;

	for (i = 0; i < WAITS_MAX; i++) {
		uint32_t free = 0;

		if (atomic_compare_exchange_strong(&waits->waits[i].taken, &free, 1))
			return &waits->waits[i];
	}
	return NULL;
}

static void tell(struct published_wait *wait, const struct published_wait *now)
{
	sequence_begin(&wait->sequence);
	wait->kind = now->kind;
	wait->since = now->since;
	wait->bytes = now->bytes;
	wait->requests = atomic_load_explicit(&now->requests, memory_order_relaxed);
	wait->thread = now->thread;
	memcpy(wait->words, now->words, sizeof(wait->words));
	sequence_end(&wait->sequence);
}

struct published_wait *wait_begin(struct published_waits *waits, enum wait_kind kind, uint64_t since,
				  uint64_t bytes, const char *words)
{
	struct published_wait *wait = take_place(waits);
	struct published_wait now = {
		.kind = kind,
		.since = since ? since : clock_ns(),
		.bytes = bytes,
		.thread = kind ? gettid() : 0,
	};

	if (!wait) {
		atomic_fetch_add(&waits->left_out, 1);
		return NULL;
	}
	snprintf(now.words, sizeof(now.words), "%s", words);
	tell(wait, &now);
	return wait;
}

HOT void wait_note(struct published_waits *waits)
{
	/*
	 * A program can put or take a block every few hundred ns. Reading the exact time so often
	 * would cost too much, so this call stores the time of the last tick.
	 */
	atomic_store_explicit(&waits->last, clock_tick_ns(), memory_order_relaxed);
}

void wait_end(struct published_waits *waits, struct published_wait *wait)
{
	struct published_wait nothing = { 0 };

	wait_note(waits);
	if (!wait) {
		atomic_fetch_sub(&waits->left_out, 1);
		return;
	}
	tell(wait, &nothing);
	atomic_store(&wait->taken, 0);
}
