/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Lengths of private memory, and which of their huge pages may have something in
 * them. Under the caller's lock, but for range_zero().
 */
#ifndef LIB_PRELOAD_MALLOC_RANGE_H
#define LIB_PRELOAD_MALLOC_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "preload/malloc/place.h"

#define PAGE_BYTES	(2UL << 20)
/* Ranges begin at, and are as long as, multiples of this. */
#define CHUNK_BYTES	(64UL << 20)

struct range {
	struct range *next;
	uintptr_t base;
	size_t length;
	struct extent *first;
	size_t filled;			/* pages that may have something in them */
	size_t room;			/* pages that @pages has room for */
	uint8_t pages[];		/* see range.c */
};

/* The state of one block's pages when it was taken. */
struct taken_pages {
	bool first_was_filled, last_was_filled;
};

/* NULL: no address space, no memory for the bookkeeping, or not on that node. */
struct range *range_make(const struct place *place, unsigned int node, size_t length);

/* Nothing of it is taken. */
void range_unmake(struct range *range);

static inline bool range_has(const struct range *range, uintptr_t address)
{
	return address - range->base < range->length;
}

/* Someone gets, or gave back at time @now, the bytes from @from to @to. */
struct taken_pages range_take(struct range *range, uintptr_t from, uintptr_t to);
void range_give(struct range *range, uintptr_t from, uintptr_t to, uint64_t now);

/* Writes zeroes where there may be others; only the owner of the bytes calls it. */
void range_zero(const struct range *range, uintptr_t from, uintptr_t to,
		struct taken_pages taken);

/*
 * Gives the kernel those pages of a free part that were freed at @age or more
 * before @now, up to @most bytes. Returns how many bytes they are.
 */
size_t range_release(struct range *range, uintptr_t from, uintptr_t to, uint64_t now,
		     uint64_t age, size_t most);

#endif /* LIB_PRELOAD_MALLOC_RANGE_H */
