/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Ranges of private memory in huge pages.
 *
 * One byte for each page of 2 MiB says what the page may contain: nothing, data of a taken block,
 * or data of a freed block. For a freed block, the byte is STAMP plus the time when the block was
 * freed, in the caller's units and modulo STAMPS. If several blocks share a page, the byte records
 * only the last change. That does no harm: a page is returned to the kernel only when all of it is
 * free, and its byte then has the time when its last block was freed.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "base/base.h"
#include "preload/malloc/own.h"
#include "preload/malloc/range.h"

#define EMPTY		0
#define TAKEN		1
#define STAMP		2	/* STAMP + T: freed at time T */
#define STAMPS		250

#ifndef PR_SET_VMA
#define PR_SET_VMA		0x53564d41
#define PR_SET_VMA_ANON_NAME	0
#endif

size_t range_filled_bytes;

static struct range *unused;

static struct range *take_unused(size_t room)
{
	struct range **link, *range;

	for (link = &unused; (range = *link); link = &range->next) {
		if (range->room < room)
			continue;
		*link = range->next;
		memset(range->pages, EMPTY, room);
		return range;
	}
	range = own_calloc(1, sizeof(*range) + room);
	if (range)
		range->room = room;
	return range;
}

static void give_unused(struct range *range)
{
	range->next = unused;
	unused = range;
}

struct range *range_make(const struct place *place, unsigned int node, size_t length)
{
	struct range *range = take_unused(length / PAGE_BYTES);
	void *address = MAP_FAILED;

	if (range)
		address = room_map(length, CHUNK_BYTES, PROT_READ | PROT_WRITE, 0);
	/*
	 * With by_caller, ignore a refusal: pages come from the node of the CPU that touches them.
	 */
	if (address != MAP_FAILED && place_range(place, node, address, length) &&
	    !place->by_caller) {
		munmap(address, length);
		address = MAP_FAILED;
	}
	if (address == MAP_FAILED) {
		if (range)
			give_unused(range);
		return NULL;
	}
	/* If this madvise() fails, the kernel uses small pages, and `actmem run` reports that. */
	madvise(address, length, MADV_HUGEPAGE);
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, address, length, "actmem-malloc");
	range->base = (uintptr_t)address;
	range->length = length;
	range->filled = 0;
	return range;
}

void range_unmake(struct range *range)
{
	munmap((void *)range->base, range->length);
	give_unused(range);
}

static size_t page_of(const struct range *range, uintptr_t address)
{
	return (address - range->base) / PAGE_BYTES;
}

static size_t page_behind(const struct range *range, uintptr_t address)
{
	return page_of(range, address + PAGE_BYTES - 1);
}

void range_take(struct range *range, uintptr_t from, uintptr_t to)
{
	size_t page = page_of(range, from), end = page_behind(range, to);

	for (; page < end; page++) {
		if (range->pages[page] == EMPTY) {
			range->filled++;
			range_filled_bytes += PAGE_BYTES;
		}
		range->pages[page] = TAKEN;
	}
}

void range_give(struct range *range, uintptr_t from, uintptr_t to, uint64_t now)
{
	size_t page = page_of(range, from);

	memset(&range->pages[page], (int)(STAMP + now % STAMPS), page_behind(range, to) - page);
}

static uintptr_t address_of_page(const struct range *range, size_t page)
{
	return range->base + page * PAGE_BYTES;
}

static bool is_old(uint8_t state, uint64_t now, uint64_t age)
{
	return state >= STAMP && (!age || (now + STAMPS - (state - STAMP)) % STAMPS >= age);
}

void range_offer(const struct range *range, uintptr_t from, uintptr_t to)
{
	size_t page = page_behind(range, from), end = page_of(range, to);

	if (page < end)
		madvise((void *)address_of_page(range, page), (end - page) * PAGE_BYTES, MADV_FREE);
}

size_t range_release(struct range *range, uintptr_t from, uintptr_t to, uint64_t now,
		     uint64_t age, size_t most)
{
	size_t page = page_behind(range, from), end = page_of(range, to), run, released = 0;

	while (page < end && released < most) {
		for (run = page; run < end && is_old(range->pages[run], now, age) &&
		     released + (run - page) * PAGE_BYTES < most;)
			run++;
		/* madvise() fails for locked memory; a later call tries again. */
		if (run > page && !madvise((void *)address_of_page(range, page),
					   (run - page) * PAGE_BYTES, MADV_DONTNEED)) {
			memset(&range->pages[page], EMPTY, run - page);
			range->filled -= run - page;
			range_filled_bytes -= (run - page) * PAGE_BYTES;
			released += (run - page) * PAGE_BYTES;
		}
		page = run + 1;
	}
	return released;
}
