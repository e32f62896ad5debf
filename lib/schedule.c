/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * When a block is wanted, how much of all there will be, and how far to read ahead.
 */
#include <stdlib.h>

#include "schedule.h"

#define BUCKETS_FIRST	64
#define SECOND_NS	1000000000ULL
/* A measurement of a device counts when it took so long. */
#define MEASURE_NS	5000000ULL
/* No device takes so long to begin with what it is asked for. */
#define BUSY_NS		50000000ULL
#define BUSY_LEAST	(32ULL << 20)
/* What is below this part of a peak is next to nothing. */
#define LITTLE_PART	16
/* Bytes that fell by this part of the round's peak do not rise again. */
#define FALLEN_PART	8

struct schedule_name {
	struct link link;
	struct schedule_name *chain;
	uint64_t name;
	unsigned int turn;
	uint64_t distance;
};

void schedule_init(struct schedule *schedule)
{
	*schedule = (struct schedule){ .is_falling = true };
	link_init(&schedule->names);
}

void schedule_destroy(struct schedule *schedule)
{
	while (!link_is_alone(&schedule->names)) {
		struct link *link = schedule->names.next;

		link_remove(link);
		free(link_item(link, struct schedule_name, link));
	}
	free(schedule->buckets);
}

static struct schedule_name **bucket_of(const struct schedule *schedule, uint64_t name,
					unsigned int turn)
{
	uint64_t hash = (name + turn * 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;

	return &schedule->buckets[(hash ^ hash >> 32) & (schedule->bucket_count - 1)];
}

static struct schedule_name *find(const struct schedule *schedule, uint64_t name,
				  unsigned int turn)
{
	struct schedule_name *found;

	if (!schedule->buckets)
		return NULL;
	found = *bucket_of(schedule, name, turn);
	while (found && (found->name != name || found->turn != turn))
		found = found->chain;
	return found;
}

/* Without memory for more of them chains become longer; false: there are none. */
static bool have_buckets(struct schedule *schedule)
{
	size_t count = schedule->bucket_count ? 2 * schedule->bucket_count : BUCKETS_FIRST;
	struct schedule_name **buckets;
	struct link *link;

	if (schedule->name_count < schedule->bucket_count)
		return true;
	buckets = calloc(count, sizeof(struct schedule_name *));
	if (!buckets)
		return schedule->buckets;
	free(schedule->buckets);
	schedule->buckets = buckets;
	schedule->bucket_count = count;
	for (link = schedule->names.next; link != &schedule->names; link = link->next) {
		struct schedule_name *item = link_item(link, struct schedule_name, link);
		struct schedule_name **bucket = bucket_of(schedule, item->name, item->turn);

		item->chain = *bucket;
		*bucket = item;
	}
	return true;
}

static void unchain(struct schedule *schedule, struct schedule_name *item)
{
	struct schedule_name **chain = bucket_of(schedule, item->name, item->turn);

	while (*chain != item)
		chain = &(*chain)->chain;
	*chain = item->chain;
}

/* NULL: no memory, and it is not learned. */
static struct schedule_name *add(struct schedule *schedule, uint64_t name, unsigned int turn)
{
	struct schedule_name *item, **bucket;

	if (!have_buckets(schedule))
		return NULL;
	if (schedule->name_count == SCHEDULE_NAMES_MAX) {
		item = link_item(schedule->names.next, struct schedule_name, link);
		unchain(schedule, item);
		link_remove(&item->link);
	} else {
		item = malloc(sizeof(*item));
		if (!item)
			return NULL;
		schedule->name_count++;
		link_init(&item->link);
	}
	item->name = name;
	item->turn = turn;
	bucket = bucket_of(schedule, name, turn);
	item->chain = *bucket;
	*bucket = item;
	return item;
}

struct want schedule_put(struct schedule *schedule, uint64_t name, unsigned int turn)
{
	const struct schedule_name *known = find(schedule, name, turn);

	schedule->takes_since_put = 0;
	return (struct want){
		.at = known ? schedule->clock + known->distance : WANTED_UNKNOWN,
		.put = ++schedule->puts,
	};
}

void schedule_take(struct schedule *schedule, uint64_t name, unsigned int turn,
		   uint64_t put_clock)
{
	struct schedule_name *known = find(schedule, name, turn);

	schedule->clock++;
	schedule->takes_since_put++;
	if (!known)
		known = add(schedule, name, turn);
	if (!known)
		return;
	known->distance = schedule->clock - put_clock;
	link_remove(&known->link);
	link_append(&schedule->names, &known->link);
}

struct want schedule_urgent(struct schedule *schedule)
{
	return (struct want){ .at = 0, .put = UINT64_MAX - schedule->urgent++ };
}

static void end_round(struct schedule *schedule)
{
	unsigned int i;

	for (i = SCHEDULE_ROUNDS - 1; i; i--)
		schedule->peaks[i] = schedule->peaks[i - 1];
	schedule->peaks[0] = schedule->high;
}

void schedule_live(struct schedule *schedule, uint64_t bytes)
{
	uint64_t little = schedule_peak(schedule) / LITTLE_PART;

	if (schedule->is_falling) {
		if (bytes < schedule->low)
			schedule->low = bytes;
		if (bytes <= schedule->low || (schedule->low > little && bytes < schedule->low + little))
			return;
		schedule->is_falling = false;
		schedule->high = bytes;
	} else if (bytes > schedule->high) {
		schedule->high = bytes;
	} else if (bytes < schedule->high / 2) {
		end_round(schedule);
		schedule->is_falling = true;
		schedule->low = bytes;
	}
}

uint64_t schedule_peak(const struct schedule *schedule)
{
	uint64_t peak = 0;
	unsigned int i;

	for (i = 0; i < SCHEDULE_ROUNDS; i++)
		if (schedule->peaks[i] > peak)
			peak = schedule->peaks[i];
	return peak;
}

bool schedule_is_rising(const struct schedule *schedule, uint64_t bytes)
{
	return !schedule->is_falling && bytes >= schedule->high - schedule->high / FALLEN_PART;
}

void bandwidth_begin(struct bandwidth *bandwidth, uint64_t bytes, uint64_t now)
{
	if (!bandwidth->under_way)
		bandwidth->since = now;
	bandwidth->under_way += bytes;
}

void bandwidth_end(struct bandwidth *bandwidth, uint64_t bytes, bool well, uint64_t now)
{
	uint64_t measured;

	bandwidth->under_way -= bytes;
	if (well)
		bandwidth->bytes += bytes;
	bandwidth->busy_ns += now - bandwidth->since;
	bandwidth->since = now;
	if (!bandwidth->bytes || bandwidth->busy_ns < MEASURE_NS)
		return;
	measured = (uint64_t)((__uint128_t)bandwidth->bytes * SECOND_NS / bandwidth->busy_ns);
	bandwidth->bytes_per_second = bandwidth->bytes_per_second ?
				      (bandwidth->bytes_per_second * 3 + measured) / 4 : measured;
	bandwidth->bytes = 0;
	bandwidth->busy_ns = 0;
}

uint64_t bandwidth_busy(const struct bandwidth *bandwidth, uint64_t most)
{
	uint64_t bytes = bandwidth->bytes_per_second / (SECOND_NS / BUSY_NS);

	if (!bandwidth->bytes_per_second)
		return most;
	if (bytes < BUSY_LEAST)
		bytes = BUSY_LEAST;
	return bytes < most ? bytes : most;
}

void pace_take(struct pace *pace, uint64_t length, uint64_t now)
{
	uint64_t pause = pace->last ? now - pace->last : 0;

	pace->last = now;
	pace->pause -= pace->pause / 16;
	if (pause > SECOND_NS)
		pause = SECOND_NS;
	if (pause > pace->pause)
		pace->pause = pause;
	pace->length = pace->length ? (pace->length * 7 + length) / 8 : length;
}

void pace_put(struct pace *pace, uint64_t length)
{
	if (length > pace->longest)
		pace->longest = length;
}

uint64_t pace_window(const struct pace *pace, const struct bandwidth *read, uint64_t busy_bytes,
		     uint64_t budget)
{
	uint64_t window = (uint64_t)((__uint128_t)read->bytes_per_second * pace->pause / SECOND_NS);

	window += busy_bytes;
	if (window < 2 * pace->longest)
		window = 2 * pace->longest;
	return window < budget / 2 ? window : budget / 2;
}
