/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Measures alternatives in turns, so that other load on the machine slows all of them down. */
#ifndef ACTMEM_CONTEST_H
#define ACTMEM_CONTEST_H

#include <jansson.h>
#include <stdint.h>

#define CONTEST_ROUNDS_MAX	256
#define CONTEST_WORDS		1024	/* as long as any message of the library */

struct contestant {
	const char *what;
	uint64_t bytes;			/* of one round */
	/*
	 * Runs one round, and stores its duration in *@ns. Returns 0, or a negative errno, after
	 * which the contestant has no more rounds. @words is an error message or a note.
	 */
	int (*round)(struct contestant *contestant, uint64_t *ns);
	const void *data;
	char words[CONTEST_WORDS];
	int error;
	unsigned int rounds;
	uint64_t ns[CONTEST_ROUNDS_MAX];
};

/* Runs at least three rounds of each contestant, and more until each had @seconds. */
void contest_run(struct contestant *contestants, unsigned int count, double seconds);

/*
 * Returns {"what", "bytes", "rounds", "bandwidth", "note"}. The bandwidth is the median in bytes
 * per second, or null on failure. The note is a message or null. Returns NULL if out of memory.
 */
json_t *contestant_to_json(struct contestant *contestant);

#endif
