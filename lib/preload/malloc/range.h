/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Ranges of private memory, with a record of the huge pages that may contain data. The caller's
 * lock guards everything.
 */
#ifndef LIB_PRELOAD_MALLOC_RANGE_H
#define LIB_PRELOAD_MALLOC_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "preload/malloc/place.h"

#define PAGE_BYTES	(2UL << 20)
/* Addresses and lengths of ranges are multiples of this. */
#define CHUNK_BYTES	(64UL << 20)

struct range {
	struct range *next;
	uintptr_t base;
	size_t length;
	struct extent *first;
	size_t filled;			/* number of pages that may contain data */
	size_t room;			/* length of @pages */
	uint8_t pages[];		/* state of each page: see range.c */
};

/* Total bytes of the pages that may contain data, in all ranges. */
extern size_t range_filled_bytes;

/*
 * Maps a range. Returns NULL if address space or memory for the bookkeeping is lacking. Also
 * returns NULL if the kernel refuses the policy of @place and by_caller is not set.
 */
struct range *range_make(const struct place *place, unsigned int node, size_t length);

/* Unmaps a range. The caller must have freed all of it. */
void range_unmake(struct range *range);

static inline bool range_has(const struct range *range, uintptr_t address)
{
	return address - range->base < range->length;
}

/* Mark the bytes from @from to @to as taken, or as freed at time @now. */
void range_take(struct range *range, uintptr_t from, uintptr_t to);
void range_give(struct range *range, uintptr_t from, uintptr_t to, uint64_t now);

/*
 * Permits the kernel to take the whole pages between @from and @to if the kernel needs memory.
 * These pages must be free.
 */
void range_offer(const struct range *range, uintptr_t from, uintptr_t to);

/*
 * Gives back to the kernel the whole pages between @from and @to that were freed at least @age
 * before @now, up to @most bytes, rounded up to whole pages. Returns the number of bytes that it
 * gave back.
 */
size_t range_release(struct range *range, uintptr_t from, uintptr_t to, uint64_t now,
		     uint64_t age, size_t most);

#endif /* LIB_PRELOAD_MALLOC_RANGE_H */
