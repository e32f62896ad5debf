/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * When a block is wanted, learned from when those of its name were; how much of
 * all there will be; and how far to read ahead. It takes no lock and does no I/O.
 *
 * Time is counted in takes. A key's block was wanted so many takes after its put,
 * and the next one of that key is expected to be; of a key that was never taken, as
 * the last one of its name, and so is every one whose instance does not recur. A block
 * that is kept for another take is put anew, for its second turn.
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

/* Of a name that was never taken: after all that are known, the last put first. */
#define WANTED_UNKNOWN		UINT64_MAX

struct habit;

struct schedule {
	uint64_t clock;			/* takes */
	uint64_t puts;
	uint64_t urgent, guesses;
	uint64_t takes_since_put;
	struct habit **buckets;
	size_t bucket_count, habit_count;
	struct link habits;		/* the one that was not seen for longest is first */
	/* Bytes of all blocks: they rise to a peak and fall again, in each round. */
	uint64_t peaks[SCHEDULE_ROUNDS];	/* of the last rounds */
	uint64_t refills[SCHEDULE_ROUNDS];	/* by which they rose again in between */
	uint64_t high, low, dip, refill;	/* since the round began; low: since it fell */
	bool is_falling;
};

void schedule_init(struct schedule *schedule);
void schedule_destroy(struct schedule *schedule);

/* When a block that is put now, for its @turn (0, 1, ...), is wanted. */
struct want schedule_put(struct schedule *schedule, struct actmem_key key, unsigned int turn);

/* A block that was put at @put_clock is taken now, for its @turn. */
void schedule_take(struct schedule *schedule, struct actmem_key key, unsigned int turn,
		   uint64_t put_clock);

/* Before all others, but for those that were so before. */
struct want schedule_urgent(struct schedule *schedule);

/* Before all others, but for those that are urgent; of several, the last one first. */
struct want schedule_guess(struct schedule *schedule);

/* All blocks have so many bytes now. */
void schedule_live(struct schedule *schedule, uint64_t bytes);

/* The highest peak of the last rounds; 0: there was none. */
uint64_t schedule_peak(const struct schedule *schedule);

/*
 * By how much the bytes rise again after they have fallen in a round: what is to be
 * kept free for puts. 0 where all puts of a round come before its takes.
 */
uint64_t schedule_refill(const struct schedule *schedule);

/* Whether the bytes of this round may still rise. */
bool schedule_is_rising(const struct schedule *schedule, uint64_t bytes);

/* The rate of a device, measured while it has something to do. */
struct bandwidth {
	uint64_t bytes_per_second;	/* 0: not yet */
	uint64_t bytes, busy_ns;	/* since that was measured */
	uint64_t since;			/* ns: busy from then on, and not yet counted */
	uint64_t under_way;		/* bytes */
};

void bandwidth_begin(struct bandwidth *bandwidth, uint64_t bytes, uint64_t now);
/* @well: the bytes have been transferred. */
void bandwidth_end(struct bandwidth *bandwidth, uint64_t bytes, bool well, uint64_t now);

/* Bytes that keep the device busy until more can be asked of it; @most: at first. */
uint64_t bandwidth_busy(const struct bandwidth *bandwidth, uint64_t most);

/* The pause between takes, and how long their blocks are. */
struct pace {
	uint64_t last;			/* ns; 0: none yet */
	uint64_t pause;			/* the longest of the last ones, in ns */
	uint64_t length;		/* of a block, in the mean */
	uint64_t longest;		/* of the blocks that there were */
};

void pace_take(struct pace *pace, uint64_t length, uint64_t now);
void pace_put(struct pace *pace, uint64_t length);

/*
 * Bytes to read ahead: what the device reads in a pause, so that it need not pause
 * too, and @busy_bytes, which keep it busy; at least two blocks; at most half of the
 * budget.
 */
uint64_t pace_window(const struct pace *pace, const struct bandwidth *read, uint64_t busy_bytes,
		     uint64_t budget);

#endif /* LIB_STORE_SCHEDULE_H */
