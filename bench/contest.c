// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Runs rounds of contestants in turns, and computes their medians. */
#include <stdbool.h>
#include <stdlib.h>
#include "base/base.h"
#include "contest.h"
#include "../tools/table.h"

#define ROUNDS_LEAST	3

static bool has_another(const struct contestant *contestant, unsigned int round, bool in_time)
{
	return !contestant->error && round < CONTEST_ROUNDS_MAX &&
	       (in_time || round < ROUNDS_LEAST);
}

void contest_run(struct contestant *contestants, unsigned int count, double seconds)
{
	uint64_t end_ns = clock_ns() + (uint64_t)(seconds * count * NS_PER_SECOND);
	unsigned int round = 0, i;
	bool any = true;

	while (any) {
		bool in_time = clock_ns() < end_ns;

		any = false;
		for (i = 0; i < count; i++) {
			struct contestant *one = &contestants[i];

			if (!has_another(one, round, in_time))
				continue;
			one->error = one->round(one, &one->ns[round]);
			if (!one->error)
				one->rounds++;
			any = true;
		}
		round++;
	}
}

static int compare_ns(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

json_t *contestant_to_json(struct contestant *contestant)
{
	json_t *bandwidth = json_null();
	uint64_t median;

	if (!contestant->error && contestant->rounds) {
		qsort(contestant->ns, contestant->rounds, sizeof(contestant->ns[0]), compare_ns);
		median = contestant->ns[contestant->rounds / 2];
		bandwidth = json_integer((json_int_t)((double)contestant->bytes * NS_PER_SECOND /
						      (double)(median + !median)));
	}
	return json_pack("{s:s, s:I, s:i, s:o, s:o}", "what", contestant->what,
			 "bytes", (json_int_t)contestant->bytes,
			 "rounds", (int)contestant->rounds, "bandwidth", bandwidth,
			 "note", *contestant->words ? text_to_json(contestant->words)
						    : json_null());
}
