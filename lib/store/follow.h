/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Predicts which blocks the program takes next, if the program does not take blocks in the expected
 * order. The predicted blocks are neighbours of the last taken block: they were put just before or
 * just after it. Puts are numbered from 1. The functions take no lock and do no I/O.
 *
 * A run is a sequence of takes that goes from neighbour to neighbour, up (to later puts) or down. A
 * run is expected to be as long as the previous run. Once a run is longer than the previous run, it
 * is expected to grow to twice its present length.
 */
#ifndef LIB_STORE_FOLLOW_H
#define LIB_STORE_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

struct follow {
	unsigned int doubt;		/* rises with each miss, falls with each expected take */
	bool is_lost;			/* do not rely on the expected order */
	bool is_up;			/* direction of the last run of two or more takes */
	uint64_t run, last_run;		/* takes in this run and in the last run */
	uint64_t below, above;		/* put numbers of the neighbours; 0: none */
};

enum take_kind {
	TAKE_FORESEEN,			/* the take is at the expected time */
	TAKE_BY_CHANCE,			/* at another time; the block is in memory or read next */
	TAKE_MISSED,			/* the block was neither in memory nor next to be read */
};

/*
 * Records a take of the block with put number @put. @below and @above are the put numbers of the
 * block's neighbours among the blocks that are not taken yet. @below belongs to the last block that
 * was put before this block, and @above to the first block that was put after it. 0 means that
 * there is no such block.
 */
void follow_take(struct follow *follow, enum take_kind kind, uint64_t put, uint64_t below,
		 uint64_t above);

/* Returns how many neighbours, in the direction of is_up, are expected to be taken next. */
uint64_t follow_ahead(const struct follow *follow);

/* Begins a new round (schedule.h): relies on the expected order again. */
void follow_reset(struct follow *follow);

#endif /* LIB_STORE_FOLLOW_H */
