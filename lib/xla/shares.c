/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Divides one budget and one spill limit between the stores of a process; see shares.h.
 */
#include <errno.h>

#include "xla/shares.h"

/* The possible lengths of a page. The smallest budget of a store that cannot spill is one page. */
static const uint64_t page_bytes[] = { UINT64_C(4) << 10, UINT64_C(2) << 20, UINT64_C(1) << 30 };

static uint64_t held_by(const struct share *share, enum share_of kind)
{
	struct actmem_store_stats stats;

	ACTMEM_INIT(&stats);
	if (!share->store || actmem_store_get_stats(share->store, &stats))
		return 0;
	return kind == SHARE_MEMORY ? stats.memory_bytes : stats.file_bytes;
}

/*
 * Returns how many bytes other stores cannot get: this store's limit, or its usage if that is
 * larger.
 */
static uint64_t taken_by(const struct share *share, enum share_of kind)
{
	uint64_t held = held_by(share, kind);

	return held > share->given[kind] ? held : share->given[kind];
}

static uint64_t taken_by_others(const struct shares *shares, unsigned int index,
				enum share_of kind)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < shares->count; i++)
		if (i != index && shares->list[i].store)
			sum += taken_by(&shares->list[i], kind);
	return sum;
}

static uint64_t part_of(const struct shares *shares, unsigned int index, enum share_of kind)
{
	uint64_t devices = 0;
	unsigned int i;

	for (i = 0; i < shares->count; i++)
		devices += shares->list[i].devices;
	if (devices <= shares->list[index].devices)
		return shares->total[kind];
	return (uint64_t)((__uint128_t)shares->total[kind] * shares->list[index].devices / devices);
}

static int share_give(struct share *share, enum share_of kind, uint64_t bytes)
{
	int error = kind == SHARE_MEMORY ? actmem_store_set_budget(share->store, bytes) :
		  actmem_store_set_spill_limit(share->store, bytes);

	if (!error)
		share->given[kind] = bytes;
	return error;
}

uint64_t shares_left(const struct shares *shares, unsigned int index, enum share_of kind)
{
	uint64_t part = part_of(shares, index, kind);
	uint64_t others = taken_by_others(shares, index, kind);
	uint64_t left = shares->total[kind] > others ? shares->total[kind] - others : 0;

	return part < left ? part : left;
}

/*
 * Lowers the limit of a store to the store's part of the total. If the limit is low enough already,
 * but the store has more bytes than the limit permits, sets the same limit again. The store then
 * closes the regions that became free.
 */
static int shares_lower(struct shares *shares, unsigned int index, enum share_of kind)
{
	struct share *share = &shares->list[index];
	uint64_t part = part_of(shares, index, kind);

	if (share->given[kind] > part)
		return share_give(share, kind, part);
	if (held_by(share, kind) > share->given[kind])
		return share_give(share, kind, share->given[kind]);
	return 0;
}

static bool shares_raise(struct shares *shares, unsigned int index, enum share_of kind)
{
	struct share *share = &shares->list[index];
	uint64_t left = shares_left(shares, index, kind);

	if (left > share->given[kind])
		share_give(share, kind, left);
	return share->given[kind] == part_of(shares, index, kind) &&
	       held_by(share, kind) <= share->given[kind];
}

static int shares_divide_kind(struct shares *shares, enum share_of kind)
{
	int all = 1, error = 0;
	unsigned int i;

	for (i = 0; i < shares->count && !error; i++)
		if (shares->list[i].store)
			error = shares_lower(shares, i, kind);
	for (i = 0; i < shares->count && !error; i++)
		if (shares->list[i].store)
			all &= shares_raise(shares, i, kind);
	return error ? error : all;
}

int shares_divide(struct shares *shares)
{
	int all = 1, error = 1, kind;

	for (kind = 0; kind < SHARE_KINDS && error >= 0; kind++) {
		if (shares->total[kind])
			error = shares_divide_kind(shares, (enum share_of)kind);
		all &= error;
	}
	return error < 0 ? -ERANGE : all;
}

bool shares_could_have(const struct shares *shares, unsigned int index, uint64_t bytes)
{
	return bytes >= part_of(shares, index, SHARE_MEMORY);
}

bool shares_has_all(const struct shares *shares, unsigned int index)
{
	return shares_could_have(shares, index, shares->list[index].given[SHARE_MEMORY]);
}

/*
 * Lowers a store's limit to the memory that its blocks need. If the store needs more later,
 * shares_borrow() raises the limit again.
 */
static void take_unused(struct share *share)
{
	struct actmem_store_stats stats;
	uint64_t held, bytes;
	unsigned int i = 0;

	ACTMEM_INIT(&stats);
	if (actmem_store_get_stats(share->store, &stats))
		return;
	do
		bytes = stats.block_bytes > page_bytes[i] ? stats.block_bytes : page_bytes[i];
	while (share_give(share, SHARE_MEMORY, bytes) && ++i < sizeof(page_bytes) / sizeof(page_bytes[0]));
	held = held_by(share, SHARE_MEMORY);
	if (held > share->given[SHARE_MEMORY])
		share_give(share, SHARE_MEMORY, held);
}

bool shares_borrow(struct shares *shares, unsigned int index)
{
	struct share *share = &shares->list[index];
	uint64_t others, before = share->given[SHARE_MEMORY];
	unsigned int i;

	for (i = 0; i < shares->count; i++)
		if (i != index && shares->list[i].store)
			take_unused(&shares->list[i]);
	others = taken_by_others(shares, index, SHARE_MEMORY);
	if (others < shares->total[SHARE_MEMORY] && shares->total[SHARE_MEMORY] - others > before)
		share_give(share, SHARE_MEMORY, shares->total[SHARE_MEMORY] - others);
	return share->given[SHARE_MEMORY] > before;
}
