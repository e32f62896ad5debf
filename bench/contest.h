/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Measures things that do the same in turns, so that whatever else slows the
 * machine down slows all of them.
 */
#ifndef ACTMEM_CONTEST_H
#define ACTMEM_CONTEST_H

#include <jansson.h>
#include <stdint.h>

#define CONTEST_ROUNDS_MAX	256
#define CONTEST_WORDS		1024	/* as long as any words of the library */

struct contestant {
	const char *what;
	uint64_t bytes;			/* of one round */
	/*
	 * One round: how long it took. 0, or a negative errno; words say why, or
	 * what else there is to say. It has no more rounds then.
	 */
	int (*round)(struct contestant *contestant, uint64_t *ns);
	const void *data;
	char words[CONTEST_WORDS];
	int error;
	unsigned int rounds;
	uint64_t ns[CONTEST_ROUNDS_MAX];
};

/* At least three rounds of each, and more until there were @seconds for each. */
void contest_run(struct contestant *contestants, unsigned int count, double seconds);

/*
 * {"what", "bytes", "rounds", "bandwidth", "note"}: the median's bytes a second,
 * null if it failed; note: null or words. NULL: no memory.
 */
json_t *contestant_to_json(struct contestant *contestant);

#endif
