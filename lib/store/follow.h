/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Predicts which blocks the program takes next, if the program does not take blocks in the expected
 * order. The predicted blocks are neighbours of the last taken block: they were put into the store
 * just before or just after it. Blocks are numbered from 1, in the order in which they are put into
 * the store. The functions take no lock and do no I/O.
 *
 * A run is a sequence of blocks, each taken after its neighbour, going up (to blocks that were put
 * later) or down. A run is expected to be as long as the previous run. Once a run is longer than
 * the previous run, it is expected to grow to twice its present length.
 */
#ifndef LIB_STORE_FOLLOW_H
#define LIB_STORE_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

struct follow {
	unsigned int doubt;		/* rises with each miss; falls if the order is as expected
	*/
	bool is_lost;			/* do not rely on the expected order */
	bool is_up;			/* direction of the last run of two or more blocks */
	uint64_t run, last_run;		/* blocks in this run and in the last run */
	uint64_t below, above;		/* put numbers of the neighbours; 0: none */
};

enum take_kind {
	TAKE_FORESEEN,			/* the block is taken at the expected time */
	TAKE_BY_CHANCE,			/* unexpected; the block is in memory or next to be read */
	TAKE_MISSED,			/* the block was neither in memory nor next to be read */
};

/*
 * Records that the block with put number @put was taken. @below and @above are the put numbers of
 * the block's neighbours among the blocks that are not taken yet. @below belongs to the last block
 * that was put before this block, and @above to the first block that was put after it. 0 means that
 * there is no such block.
 */
void follow_take(struct follow *follow, enum take_kind kind, uint64_t put, uint64_t below,
		 uint64_t above);

/* Returns how many neighbours, in the direction of is_up, are expected to be taken next. */
uint64_t follow_ahead(const struct follow *follow);

/* Begins a new round (schedule.h): relies on the expected order again. */
void follow_reset(struct follow *follow);

#endif /* LIB_STORE_FOLLOW_H */
