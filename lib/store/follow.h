/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Predicts the next takes if takes are not in the expected order. It expects the blocks that were
 * put just before or just after the last taken block: its neighbours. It takes no lock and does no
 * I/O.
 *
 * A run is a sequence of takes that goes from neighbour to neighbour, up or down. A run is expected
 * to be as long as the last one. If it gets longer than that, it is expected to double its length.
 */
#ifndef LIB_STORE_FOLLOW_H
#define LIB_STORE_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

struct follow {
	unsigned int doubt;
	bool is_lost;			/* do not rely on the expected order */
	bool is_up;			/* direction of the last run of two or more takes */
	uint64_t run, last_run;		/* lengths in takes */
	uint64_t below, above;		/* put numbers of the neighbours; 0: none */
};

enum take_kind {
	TAKE_FORESEEN,			/* at the expected time */
	TAKE_BY_CHANCE,			/* at another time; in memory, or next to be read */
	TAKE_MISSED,			/* the block was neither in memory nor next to be read */
};

/*
 * Records a take of the block with put number @put. @below and @above are the put numbers of its
 * neighbours, the nearest blocks before and after it that are not taken yet; 0: none.
 */
void follow_take(struct follow *follow, enum take_kind kind, uint64_t put, uint64_t below,
		 uint64_t above);

/* Returns how many neighbours are expected next, in the direction of is_up. */
uint64_t follow_ahead(const struct follow *follow);

/* Relies on the expected order again, for a new round. */
void follow_reset(struct follow *follow);

#endif /* LIB_STORE_FOLLOW_H */
