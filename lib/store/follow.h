/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The blocks that are wanted next where takes are not in the order that was foreseen: neighbours,
 * in the order of their puts, of what was taken last. It takes no lock and does no I/O.
 *
 * Takes that go on from neighbour to neighbour, up or down, are a run. It is expected to
 * be as long as the last one; one that is longer, to go on for as long again.
 */
#ifndef LIB_STORE_FOLLOW_H
#define LIB_STORE_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

struct follow {
	unsigned int doubt;
	bool is_lost;			/* what was foreseen is not to be relied on */
	bool is_up;			/* the run, or the last one that had a direction */
	uint64_t run, last_run;		/* takes */
	uint64_t below, above;		/* puts: neighbours of the last take; 0: none */
};

enum take_kind {
	TAKE_FORESEEN,			/* when it was expected */
	TAKE_BY_CHANCE,			/* at another time, but it was in memory, or on the way */
	TAKE_MISSED,			/* and it was not */
};

/*
 * The put of that number is taken; of those that are left, @below and @above are the
 * puts before it and after it, 0 for none.
 */
void follow_take(struct follow *follow, enum take_kind kind, uint64_t put, uint64_t below,
		 uint64_t above);

/* How many neighbours are expected next; in which direction, is_up tells. */
uint64_t follow_ahead(const struct follow *follow);

/* Another round: what is foreseen is believed again. */
void follow_reset(struct follow *follow);

#endif /* LIB_STORE_FOLLOW_H */
