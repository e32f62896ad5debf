/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Learns when blocks will be taken, how much memory all blocks need at the peak, and how far to
 * read ahead. The functions take no lock and do no I/O.
 *
 * Time is counted in blocks taken: whenever a block is taken, the clock advances by one. The
 * distance of a block is the time between putting it into the store and taking it. The next block
 * of a key is expected to have the same distance as the key's last block. A key consists of a name
 * and an instance. There are two exceptions: no block of the key was ever taken, or the instance
 * does not recur (ACTMEM_INSTANCE_ONCE). The block is then expected to have the same distance as
 * the last taken block of its name.
 *
 * A block can be put back after it was taken. This counts as putting a new block, and begins the
 * block's next turn. Turns are numbered from 0.
 */
#ifndef LIB_STORE_SCHEDULE_H
#define LIB_STORE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"
#include "base/base.h"
#include "store/order.h"

#define SCHEDULE_HABITS_MAX	65536
#define SCHEDULE_ROUNDS		4

/*
 * The expected time of a block if no block of its name was ever taken. It is after all known times.
 * Of several blocks with this time, the block that was put last is expected first.
 */
#define WANTED_UNKNOWN		UINT64_MAX

/* A learned distance (schedule.c). */
struct habit;

struct schedule {
	uint64_t clock;			/* the time: number of blocks taken so far */
	uint64_t puts;
	uint64_t urgent, guesses;
	uint64_t takes_since_put;
	struct habit **buckets;
	size_t bucket_count, habit_count;
	struct link habits;		/* least recently updated first */
	/* In each round, the bytes of all blocks rise to a peak and fall again. */
	uint64_t peaks[SCHEDULE_ROUNDS];	/* peaks of the last rounds */
	uint64_t refills[SCHEDULE_ROUNDS];	/* how much the bytes rose again after a fall */
	uint64_t high, low, dip, refill;	/* in this round; low is valid while is_falling */
	bool is_falling;
};

void schedule_init(struct schedule *schedule);
void schedule_destroy(struct schedule *schedule);

/*
 * Records that a block was put into the store: its turn @turn begins. Returns the time when the
 * block is expected to be taken.
 */
struct want schedule_put(struct schedule *schedule, struct actmem_key key, unsigned int turn);

/* Records that a block was taken in its turn @turn. @put_clock is the time when that turn began. */
void schedule_take(struct schedule *schedule, struct actmem_key key, unsigned int turn,
		   uint64_t put_clock);

/*
 * Returns an urgent time: it is after the urgent times that were returned earlier, but before all
 * other times.
 */
struct want schedule_urgent(struct schedule *schedule);

/*
 * Returns the time of a guess: it is after all urgent times, but before all other times, even those
 * of earlier guesses.
 */
struct want schedule_guess(struct schedule *schedule);

/* Records the current bytes of all blocks. */
void schedule_live(struct schedule *schedule, uint64_t bytes);

/* Returns the highest peak of the last rounds; 0: no round has ended. */
uint64_t schedule_peak(const struct schedule *schedule);

/*
 * Returns by how much the bytes of all blocks rise again after a fall within a round. The store
 * should keep this amount of memory free for new blocks. The result is 0 if the program puts all
 * blocks of a round before it takes any.
 */
uint64_t schedule_refill(const struct schedule *schedule);

/* Returns true if the bytes of this round may still rise. */
bool schedule_is_rising(const struct schedule *schedule, uint64_t bytes);

/* The rate of a device, measured while transfers are under way. */
struct bandwidth {
	uint64_t bytes_per_second;	/* 0: not measured yet */
	uint64_t bytes, busy_ns;	/* since the last measurement */
	uint64_t since;			/* ns: start of the time not yet counted in busy_ns */
	uint64_t under_way;		/* bytes */
};

void bandwidth_begin(struct bandwidth *bandwidth, uint64_t bytes, uint64_t now);
/* @well is true if the transfer succeeded. */
void bandwidth_end(struct bandwidth *bandwidth, uint64_t bytes, bool well, uint64_t now);

/*
 * Returns how many bytes must be under way so that the device stays busy until more transfers are
 * submitted. The result is at most @most. Until the rate is known, it is @most.
 */
uint64_t bandwidth_busy(const struct bandwidth *bandwidth, uint64_t most);

/* The pauses after each taken block, and the lengths of blocks. */
struct pace {
	uint64_t last;			/* ns; 0: no block taken yet */
	uint64_t pause;			/* longest recent pause, in ns */
	uint64_t length;		/* average length of taken blocks */
	uint64_t longest;		/* length of the longest block so far */
};

void pace_take(struct pace *pace, uint64_t length, uint64_t now);
void pace_put(struct pace *pace, uint64_t length);

/*
 * Returns how many bytes to read ahead: as many as the device can read during a pause, plus
 * @busy_bytes, so that the device is never idle. The result is at least twice the longest block,
 * and at most half the budget.
 */
uint64_t pace_window(const struct pace *pace, const struct bandwidth *read, uint64_t busy_bytes,
		     uint64_t budget);

#endif /* LIB_STORE_SCHEDULE_H */
