/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A hash table of blocks by token, with chains; see table.h. The lower bits of tokens are serial
 * numbers, which are evenly distributed without a hash function.
 */
#include <errno.h>
#include <stdlib.h>

#include "xla/table.h"

#define SLOTS_AT_FIRST	1024	/* a power of two */

static struct saved **slots;
static uint64_t slots_count;
static uint64_t blocks_count;

static struct saved **slot_of(uint64_t token)
{
	return &slots[token & (slots_count - 1)];
}

int table_reserve(void)
{
	uint64_t old_count = slots_count, i;
	struct saved **old = slots, **fresh, *block, *next;

	if (slots_count && blocks_count < slots_count)
		return 0;
	fresh = calloc(slots_count ? 2 * slots_count : SLOTS_AT_FIRST,
		       sizeof(*fresh));
	/* If there is no memory for more slots, the chains just grow longer. */
	if (!fresh)
		return slots_count ? 0 : -ENOMEM;
	slots = fresh;
	slots_count = slots_count ? 2 * slots_count : SLOTS_AT_FIRST;
	for (i = 0; i < old_count; i++) {
		for (block = old[i]; block; block = next) {
			next = block->table_next;
			block->table_next = *slot_of(block->token);
			*slot_of(block->token) = block;
		}
	}
	free(old);
	return 0;
}

void table_add(struct saved *block)
{
	block->table_next = *slot_of(block->token);
	*slot_of(block->token) = block;
	blocks_count++;
}

void table_remove(struct saved *block)
{
	struct saved **link = slot_of(block->token);

	while (*link != block)
		link = &(*link)->table_next;
	*link = block->table_next;
	blocks_count--;
}

struct saved *table_find(uint64_t token)
{
	struct saved *block = slots_count ? *slot_of(token) : NULL;

	while (block && block->token != token)
		block = block->table_next;
	return block;
}
