/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Learns when blocks will be taken, how much memory they need at the peak, and how far to read
 * ahead.
 */
#include <stdlib.h>

#include "base/base.h"
#include "store/schedule.h"

#define BUCKETS_FIRST	64
/* Measure the rate of a device over at least this time. */
#define MEASURE_NS	5000000ULL
/* This time is longer than any device takes to start a transfer. */
#define BUSY_NS		50000000ULL
#define BUSY_LEAST	(32ULL << 20)
/* Fewer bytes than 1/LITTLE_PART of the peak count as 0. */
#define LITTLE_PART	16
/* A fall by less than 1/FALLEN_PART of the round's peak does not count. */
#define FALLEN_PART	8

/* The last distance (schedule.h) of a key, or of all keys with the same name, in one turn. */
struct habit {
	struct link link;
	struct habit *chain;
	struct actmem_key key;
	bool is_of_name;
	unsigned int turn;
	uint64_t distance;
};

void schedule_init(struct schedule *schedule)
{
	*schedule = (struct schedule){ .is_falling = true };
	link_init(&schedule->habits);
}

void schedule_destroy(struct schedule *schedule)
{
	while (!link_is_alone(&schedule->habits)) {
		struct link *link = schedule->habits.next;

		link_remove(link);
		free(link_item(link, struct habit, link));
	}
	free(schedule->buckets);
}

static struct habit of_key(struct actmem_key key, unsigned int turn)
{
	return (struct habit){ .key = key, .turn = turn };
}

static struct habit of_name(struct actmem_key key, unsigned int turn)
{
	return (struct habit){ .key = { .name = key.name }, .is_of_name = true, .turn = turn };
}

static bool is_same(const struct habit *habit, const struct habit *other)
{
	return habit->key.name == other->key.name && habit->key.instance == other->key.instance &&
	       habit->is_of_name == other->is_of_name && habit->turn == other->turn;
}

static struct habit **bucket_of(const struct schedule *schedule, const struct habit *habit)
{
	uint64_t hash = habit->key.name * 0x9e3779b97f4a7c15ULL ^ habit->key.instance;

	hash = (hash + 2 * habit->turn + habit->is_of_name) * 0xff51afd7ed558ccdULL;
	return &schedule->buckets[(hash ^ hash >> 32) & (schedule->bucket_count - 1)];
}

static struct habit *find_habit(const struct schedule *schedule, const struct habit *like)
{
	struct habit *found;

	if (!schedule->buckets)
		return NULL;
	found = *bucket_of(schedule, like);
	while (found && !is_same(found, like))
		found = found->chain;
	return found;
}

static void chain(struct schedule *schedule, struct habit *habit)
{
	struct habit **bucket = bucket_of(schedule, habit);

	habit->chain = *bucket;
	*bucket = habit;
}

static void unchain(struct schedule *schedule, struct habit *habit)
{
	struct habit **link = bucket_of(schedule, habit);

	while (*link != habit)
		link = &(*link)->chain;
	*link = habit->chain;
}

/*
 * Grows the hash table if it is too small. If there is no memory for a larger table, the chains get
 * longer. Returns false if there is no table at all.
 */
static bool have_buckets(struct schedule *schedule)
{
	size_t count = schedule->bucket_count ? 2 * schedule->bucket_count : BUCKETS_FIRST;
	struct habit **buckets;
	struct link *link;

	if (schedule->habit_count < schedule->bucket_count)
		return true;
	buckets = calloc(count, sizeof(struct habit *));
	if (!buckets)
		return schedule->buckets;
	free(schedule->buckets);
	schedule->buckets = buckets;
	schedule->bucket_count = count;
	for (link = schedule->habits.next; link != &schedule->habits; link = link->next)
		chain(schedule, link_item(link, struct habit, link));
	return true;
}

/* Allocates a habit, or reuses the least recently updated one. */
static struct habit *new_habit(struct schedule *schedule)
{
	struct habit *habit;

	if (!have_buckets(schedule))
		return NULL;
	if (schedule->habit_count == SCHEDULE_HABITS_MAX) {
		habit = link_item(schedule->habits.next, struct habit, link);
		unchain(schedule, habit);
		link_remove(&habit->link);
		return habit;
	}
	habit = malloc(sizeof(*habit));
	if (habit)
		schedule->habit_count++;
	return habit;
}

/* Records a distance. Does nothing if there is no memory for a new habit. */
static void learn(struct schedule *schedule, const struct habit *like, uint64_t distance)
{
	struct habit *habit = find_habit(schedule, like);

	if (habit) {
		link_remove(&habit->link);
	} else {
		habit = new_habit(schedule);
		if (!habit)
			return;
		*habit = *like;
		chain(schedule, habit);
	}
	habit->distance = distance;
	link_append(&schedule->habits, &habit->link);
}

struct want schedule_put(struct schedule *schedule, struct actmem_key key, unsigned int turn)
{
	const struct habit its = of_key(key, turn), names = of_name(key, turn);
	const struct habit *known = find_habit(schedule, &its);

	if (!known)
		known = find_habit(schedule, &names);
	schedule->takes_since_put = 0;
	return (struct want){
		.at = known ? schedule->clock + known->distance : WANTED_UNKNOWN,
		.put = ++schedule->puts,
	};
}

void schedule_take(struct schedule *schedule, struct actmem_key key, unsigned int turn,
		   uint64_t put_clock)
{
	const struct habit its = of_key(key, turn), names = of_name(key, turn);

	schedule->clock++;
	schedule->takes_since_put++;
	if (!(key.instance & ACTMEM_INSTANCE_ONCE))
		learn(schedule, &its, schedule->clock - put_clock);
	learn(schedule, &names, schedule->clock - put_clock);
}

struct want schedule_urgent(struct schedule *schedule)
{
	return (struct want){ .at = 0, .put = UINT64_MAX - schedule->urgent++ };
}

struct want schedule_guess(struct schedule *schedule)
{
	return (struct want){ .at = 0, .put = ++schedule->guesses };
}

static void end_round(struct schedule *schedule)
{
	unsigned int i;

	for (i = SCHEDULE_ROUNDS - 1; i; i--) {
		schedule->peaks[i] = schedule->peaks[i - 1];
		schedule->refills[i] = schedule->refills[i - 1];
	}
	schedule->peaks[0] = schedule->high;
	schedule->refills[0] = schedule->refill;
}

static uint64_t highest(const uint64_t numbers[SCHEDULE_ROUNDS])
{
	uint64_t highest = 0;
	unsigned int i;

	for (i = 0; i < SCHEDULE_ROUNDS; i++)
		if (numbers[i] > highest)
			highest = numbers[i];
	return highest;
}

static void begin_round(struct schedule *schedule, uint64_t bytes)
{
	schedule->is_falling = false;
	schedule->high = bytes;
	schedule->dip = bytes;
	schedule->refill = 0;
}

/* Records @bytes within a round. dip is the lowest value since the last new high. */
static void go_on(struct schedule *schedule, uint64_t bytes)
{
	if (bytes < schedule->dip)
		schedule->dip = bytes;
	else if (bytes - schedule->dip > schedule->refill &&
		 schedule->dip < schedule->high - schedule->high / FALLEN_PART)
		schedule->refill = bytes - schedule->dip;
	if (bytes > schedule->high) {
		schedule->high = bytes;
		schedule->dip = bytes;
	}
}

void schedule_live(struct schedule *schedule, uint64_t bytes)
{
	uint64_t little = schedule_peak(schedule) / LITTLE_PART;

	if (!schedule->is_falling) {
		go_on(schedule, bytes);
		if (bytes >= schedule->high / 2)
			return;
		end_round(schedule);
		schedule->is_falling = true;
		schedule->low = bytes;
	} else if (bytes < schedule->low) {
		schedule->low = bytes;
	} else if (bytes > schedule->low &&
		   (schedule->low <= little || bytes >= schedule->low + little)) {
		begin_round(schedule, bytes);
	}
}

uint64_t schedule_peak(const struct schedule *schedule)
{
	return highest(schedule->peaks);
}

uint64_t schedule_refill(const struct schedule *schedule)
{
	uint64_t refill = highest(schedule->refills);

	return refill > schedule->refill || schedule->is_falling ? refill : schedule->refill;
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
	uint64_t busy_ns = now - bandwidth->since, measured;

	/* A failed transfer moved no bytes: count only the other transfers' share of the time. */
	if (!well)
		busy_ns = (uint64_t)((__uint128_t)busy_ns * (bandwidth->under_way - bytes) /
				     bandwidth->under_way);
	else
		bandwidth->bytes += bytes;
	bandwidth->under_way -= bytes;
	bandwidth->busy_ns += busy_ns;
	bandwidth->since = now;
	if (!bandwidth->bytes || bandwidth->busy_ns < MEASURE_NS)
		return;
	measured = (uint64_t)((__uint128_t)bandwidth->bytes * NS_PER_SECOND / bandwidth->busy_ns);
	bandwidth->bytes_per_second = bandwidth->bytes_per_second ?
				      (bandwidth->bytes_per_second * 3 + measured) / 4 : measured;
	bandwidth->bytes = 0;
	bandwidth->busy_ns = 0;
}

uint64_t bandwidth_busy(const struct bandwidth *bandwidth, uint64_t most)
{
	uint64_t bytes = bandwidth->bytes_per_second / (NS_PER_SECOND / BUSY_NS);

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
	if (pause > NS_PER_SECOND)
		pause = NS_PER_SECOND;
	if (pause > pace->pause)
		pace->pause = pause;
	pace->length = pace->length ? (pace->length * 63 + length) / 64 : length;
}

void pace_put(struct pace *pace, uint64_t length)
{
	if (length > pace->longest)
		pace->longest = length;
}

uint64_t pace_window(const struct pace *pace, const struct bandwidth *read, uint64_t busy_bytes,
		     uint64_t budget)
{
	uint64_t window = (uint64_t)((__uint128_t)read->bytes_per_second * pace->pause / NS_PER_SECOND);

	window += busy_bytes;
	if (window < 2 * pace->longest)
		window = 2 * pace->longest;
	return window < budget / 2 ? window : budget / 2;
}
