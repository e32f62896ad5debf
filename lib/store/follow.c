/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Detects whether blocks are taken in the expected order, and measures runs of neighbours. */
#include "store/follow.h"

#define DOUBT_OF_MISS	2
/*
 * At this doubt, the store no longer relies on the expected order. Three misses in a row are
 * enough. If expected blocks are taken between the misses, more misses are needed.
 */
#define DOUBT_LOST	6
#define DOUBT_MOST	12

static void judge(struct follow *follow, enum take_kind kind)
{
	if (kind == TAKE_MISSED)
		follow->doubt += DOUBT_OF_MISS;
	else if (kind == TAKE_FORESEEN && follow->doubt)
		follow->doubt--;
	if (follow->doubt > DOUBT_MOST)
		follow->doubt = DOUBT_MOST;
	if (follow->doubt >= DOUBT_LOST) {
		/* Runs in the previous order do not predict how long the next runs are. */
		if (!follow->is_lost)
			follow->last_run = 0;
		follow->is_lost = true;
	} else if (!follow->doubt) {
		follow->is_lost = false;
	}
}

void follow_take(struct follow *follow, enum take_kind kind, uint64_t put, uint64_t below,
		 uint64_t above)
{
	bool goes_up = put == follow->above, goes_down = put == follow->below;

	judge(follow, kind);
	if (follow->run && (goes_up || goes_down) &&
	    (follow->run == 1 || goes_up == follow->is_up)) {
		follow->is_up = goes_up;
		follow->run++;
	} else {
		follow->last_run = follow->run;
		follow->run = 1;
	}
	follow->below = below;
	follow->above = above;
}

uint64_t follow_ahead(const struct follow *follow)
{
	if (follow->run < follow->last_run)
		return follow->last_run - follow->run;
	return follow->run > follow->last_run ? follow->run : 0;
}

void follow_reset(struct follow *follow)
{
	follow->doubt = 0;
	follow->is_lost = false;
}
