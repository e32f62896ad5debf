/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Records which parts of ranges of memory are taken.
 *
 * Free extents are in classes by length, 32 for each power of two, as in two-level segregated fit
 * (TLSF). Two bit scans find an extent, and splitting and merging take constant time. Activations
 * have few lengths, and are freed in the reverse order of their allocation. A freed extent is first
 * in its class, so the next request of that length finds it at once. If neighbours of a freed
 * extent are also free, it first merges with them into the extent that was split. extents_find.c
 * chooses the free extent to take.
 *
 * A hash table with chains finds taken extents by address.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/extents.h"
#include "base/extents_find.h"

#define CHUNK_EXTENTS	128
#define BUCKETS_FIRST	128
/* Taking an extent splits off at most two more: one before and one after it. */
#define SPARE_FOR_TAKE	2

struct extent_chunk {
	struct extent_chunk *next;
	struct extent extents[CHUNK_EXTENTS];
};

static void link_free(struct extents *extents, struct extent *extent)
{
	struct class class = extent_class(extent->length);
	struct extent **head = &extents->classes[class.row][class.column];

	extent->is_free = true;
	extent->previous = NULL;
	extent->next = *head;
	if (*head)
		(*head)->previous = extent;
	*head = extent;
	extents->rows |= 1ULL << class.row;
	extents->columns[class.row] |= 1U << class.column;
	extents->free++;
}

static void unlink_free(struct extents *extents, struct extent *extent)
{
	struct class class = extent_class(extent->length);
	struct extent **head = &extents->classes[class.row][class.column];

	extent->is_free = false;
	extents->free--;
	if (extent->next)
		extent->next->previous = extent->previous;
	if (extent->previous) {
		extent->previous->next = extent->next;
		return;
	}
	*head = extent->next;
	if (*head)
		return;
	extents->columns[class.row] &= ~(1U << class.column);
	if (!extents->columns[class.row])
		extents->rows &= ~(1ULL << class.row);
}

static bool have_descriptors(struct extents *extents, size_t count)
{
	struct extent_chunk *chunk;
	unsigned int i;

	if (extents->spare_count >= count)
		return true;
	chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return false;
	chunk->next = extents->chunks;
	extents->chunks = chunk;
	for (i = CHUNK_EXTENTS; i--; ) {
		chunk->extents[i].next = extents->spare;
		extents->spare = &chunk->extents[i];
	}
	extents->spare_count += CHUNK_EXTENTS;
	return true;
}

static struct extent *take_descriptor(struct extents *extents, char *address, uint64_t length)
{
	struct extent *extent = extents->spare;

	extents->spare = extent->next;
	extents->spare_count--;
	extent->address = address;
	extent->length = length;
	extent->home = 0;
	extent->is_free = false;
	extent->before = NULL;
	extent->after = NULL;
	return extent;
}

static void give_descriptor(struct extents *extents, struct extent *extent)
{
	extent->next = extents->spare;
	extents->spare = extent;
	extents->spare_count++;
}

static struct extent **bucket_of(struct extent **buckets, size_t count, const void *address)
{
	/* Fibonacci hashing: the high bits of the product are well mixed. */
	uint64_t hash = (uintptr_t)address / EXTENT_UNIT * 0x9e3779b97f4a7c15ULL;

	return &buckets[(hash >> 32) & (count - 1)];
}

static void link_into_bucket(struct extent **buckets, size_t count, struct extent *extent)
{
	struct extent **bucket = bucket_of(buckets, count, extent->address);

	extent->chain = *bucket;
	*bucket = extent;
}

/* Doubles the number of buckets. If memory is short, the chains just become longer. */
static void add_buckets(struct extents *extents)
{
	size_t count = 2 * extents->bucket_count, i;
	struct extent **buckets = calloc(count, sizeof(*buckets)), *extent, *next;

	if (!buckets)
		return;
	for (i = 0; i < extents->bucket_count; i++) {
		for (extent = extents->buckets[i]; extent; extent = next) {
			next = extent->chain;
			link_into_bucket(buckets, count, extent);
		}
	}
	free(extents->buckets);
	extents->buckets = buckets;
	extents->bucket_count = count;
}

static void link_taken(struct extents *extents, struct extent *extent)
{
	if (++extents->taken > extents->bucket_count)
		add_buckets(extents);
	link_into_bucket(extents->buckets, extents->bucket_count, extent);
	extents->taken_bytes += extent->length;
	if (extents->taken_bytes > extents->taken_bytes_peak)
		extents->taken_bytes_peak = extents->taken_bytes;
}

static void unlink_taken(struct extents *extents, struct extent *extent)
{
	struct extent **link = bucket_of(extents->buckets, extents->bucket_count, extent->address);

	while (*link != extent)
		link = &(*link)->chain;
	*link = extent->chain;
	extents->taken--;
	extents->taken_bytes -= extent->length;
}

int extents_init(struct extents *extents)
{
	*extents = (struct extents){
		.buckets = calloc(BUCKETS_FIRST, sizeof(struct extent *)),
		.bucket_count = BUCKETS_FIRST,
	};
	return extents->buckets ? 0 : -ENOMEM;
}

void extents_destroy(struct extents *extents)
{
	struct extent_chunk *chunk;

	while ((chunk = extents->chunks)) {
		extents->chunks = chunk->next;
		free(chunk);
	}
	free(extents->buckets);
}

struct extent *extents_add_range(struct extents *extents, void *address, uint64_t length,
				 uint64_t home)
{
	struct extent *extent;

	if (!have_descriptors(extents, 1))
		return NULL;
	extent = take_descriptor(extents, address, length);
	extent->home = extent_class_number(home);
	link_free(extents, extent);
	extents->range_bytes += length;
	return extent;
}

bool extents_range_is_free(const struct extent *first)
{
	return first->is_free && !first->after;
}

void extents_remove_range(struct extents *extents, struct extent *first)
{
	unlink_free(extents, first);
	extents->range_bytes -= first->length;
	give_descriptor(extents, first);
}

/* Shortens an extent to @length. The rest becomes a new extent, which is in no class yet. */
static void cut_extent(struct extents *extents, struct extent *extent, uint64_t length)
{
	struct extent *rest = take_descriptor(extents, extent->address + length,
					      extent->length - length);

	rest->home = extent->home;
	rest->before = extent;
	rest->after = extent->after;
	if (rest->after)
		rest->after->before = rest;
	extent->after = rest;
	extent->length = length;
}

int extents_take(struct extents *extents, uint64_t length, uint64_t align, struct extent **result)
{
	struct extent *extent, *front;
	uint64_t unaligned;

	if (!have_descriptors(extents, SPARE_FOR_TAKE))
		return -ENOMEM;
	extent = extents_find(extents, length, align);
	if (!extent)
		return -ENOSPC;
	unlink_free(extents, extent);
	unaligned = extent_gap(extent, align);
	if (unaligned) {
		front = extent;
		cut_extent(extents, front, unaligned);
		extent = front->after;
		link_free(extents, front);
	}
	if (extent->length > length) {
		cut_extent(extents, extent, length);
		link_free(extents, extent->after);
	}
	link_taken(extents, extent);
	*result = extent;
	return 0;
}

/* Merges the next extent of the range into @extent. Neither of the two may be in a class. */
static void join_extents(struct extents *extents, struct extent *extent)
{
	struct extent *after = extent->after;

	extent->length += after->length;
	extent->after = after->after;
	if (extent->after)
		extent->after->before = extent;
	give_descriptor(extents, after);
}

void extents_give(struct extents *extents, struct extent *extent)
{
	unlink_taken(extents, extent);
	if (extent->after && extent->after->is_free) {
		unlink_free(extents, extent->after);
		join_extents(extents, extent);
	}
	if (extent->before && extent->before->is_free) {
		extent = extent->before;
		unlink_free(extents, extent);
		join_extents(extents, extent);
	}
	link_free(extents, extent);
}

struct extent *extents_at(const struct extents *extents, const void *address)
{
	struct extent *extent = *bucket_of(extents->buckets, extents->bucket_count, address);

	while (extent && extent->address != address)
		extent = extent->chain;
	return extent;
}

bool extents_resize(struct extents *extents, struct extent *extent, uint64_t length)
{
	uint64_t was = extent->length;
	struct extent *rest;

	if (!have_descriptors(extents, 1))
		return false;
	rest = extent->after;
	if (length > was) {
		if (!rest || !rest->is_free || rest->length < length - was)
			return false;
		unlink_free(extents, rest);
		join_extents(extents, extent);
	}
	if (extent->length > length) {
		cut_extent(extents, extent, length);
		rest = extent->after;
		if (rest->after && rest->after->is_free) {
			unlink_free(extents, rest->after);
			join_extents(extents, rest);
		}
		link_free(extents, rest);
	}
	extents->taken_bytes += length - was;
	if (extents->taken_bytes > extents->taken_bytes_peak)
		extents->taken_bytes_peak = extents->taken_bytes;
	return true;
}

uint64_t extents_largest_free(const struct extents *extents)
{
	const struct extent *extent;
	uint64_t largest = 0;
	unsigned int row;

	if (!extents->rows)
		return 0;
	row = 63 - (unsigned int)__builtin_clzll(extents->rows);
	extent = extents->classes[row][31 - __builtin_clz(extents->columns[row])];
	for (; extent; extent = extent->next)
		if (extent->length > largest)
			largest = extent->length;
	return largest;
}

static const char *wrong_in_classes(const struct extents *extents, size_t *count)
{
	const struct extent *extent, *previous;
	unsigned int row, column;
	struct class class;

	for (row = 0; row < CLASS_ROWS; row++) {
		if (!extents->columns[row] != !(extents->rows >> row & 1))
			return "a row's bit does not match its classes";
		for (column = 0; column < CLASS_COLUMNS; column++) {
			extent = extents->classes[row][column];
			if (!extent != !(extents->columns[row] >> column & 1))
				return "a class's bit does not match its extents";
			for (previous = NULL; extent; previous = extent, extent = extent->next) {
				class = extent_class(extent->length);
				if (class.row != row || class.column != column)
					return "a free extent is in the class of another length";
				if (!extent->is_free || extent->previous != previous)
					return "a class has an extent that is taken, or not linked back";
				++*count;
			}
		}
	}
	return NULL;
}

static bool is_in_table(const struct extents *extents, const struct extent *extent)
{
	return extents_at(extents, extent->address) == extent;
}

const char *extents_wrong(const struct extents *extents, struct extent *const *firsts,
			  size_t count)
{
	size_t free_seen = 0, free_listed = 0, taken = 0, i;
	const char *wrong = wrong_in_classes(extents, &free_listed);
	const struct extent *extent;
	uint64_t taken_bytes = 0, bytes = 0;

	for (i = 0; i < count; i++) {
		if (firsts[i]->before)
			return "a range's first extent has one before it";
		for (extent = firsts[i]; extent; extent = extent->after) {
			if (!extent->length || extent->length % EXTENT_UNIT)
				return "an extent has an impossible length";
			if (extent->after && (extent->after->before != extent ||
			    extent->after->address != extent->address + extent->length))
				return "two neighbours do not adjoin";
			if (extent->is_free && extent->after && extent->after->is_free)
				return "two free neighbours have not merged";
			if (!extent->is_free && !is_in_table(extents, extent))
				return "a taken extent cannot be found by its address";
			free_seen += extent->is_free;
			taken += !extent->is_free;
			taken_bytes += extent->is_free ? 0 : extent->length;
			bytes += extent->length;
		}
	}
	if (taken != extents->taken || taken_bytes != extents->taken_bytes ||
	    free_seen != extents->free || bytes != extents->range_bytes)
		return "the sums do not match the extents";
	if (!wrong && free_listed != free_seen)
		wrong = "a free extent is in no class";
	return wrong;
}
