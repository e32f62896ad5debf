/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes what this process waits for.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actmem_runtime.h"
#include "base/clock.h"
#include "base/likely.h"
#include "region/context.h"
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

struct published_wait *wait_begin(struct actmem *am, enum wait_kind kind, uint64_t since,
				  uint64_t bytes, const char *words)
{
	struct published_waits *waits = &am->stats.header->waits;
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

HOT void wait_note(struct actmem *am)
{
	/* Blocks may be put and taken every few hundred ns: the exact time is not worth as much. */
	atomic_store_explicit(&am->stats.header->waits.last, clock_tick_ns(), memory_order_relaxed);
}

void wait_end(struct actmem *am, struct published_wait *wait)
{
	struct published_wait nothing = { 0 };

	wait_note(am);
	if (!wait) {
		atomic_fetch_sub(&am->stats.header->waits.left_out, 1);
		return;
	}
	tell(wait, &nothing);
	atomic_store(&wait->taken, 0);
}

/* The place is what the caller keeps of it, and has no use for. */
struct actmem_device_wait *actmem_device_wait_begin(struct actmem *am, uint64_t bytes,
						    const char *words)
{
	if (!am || !is_owner(am))
		return NULL;
	return (struct actmem_device_wait *)wait_begin(am, WAIT_DEVICE, 0, bytes,
						       words ? words : "");
}

void actmem_device_wait_end(struct actmem *am, struct actmem_device_wait *wait)
{
	if (am && is_owner(am))
		wait_end(am, (struct published_wait *)wait);
}
