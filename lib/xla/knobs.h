/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The options (knobs) of the store of blocks, from the program or from the environment. The
 * commands `actmem run` and `actmem doctor` also use this file, to check the environment.
 */
#ifndef LIB_XLA_KNOBS_H
#define LIB_XLA_KNOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xla/actmem_xla.h"

#define KNOBS_SPILL_MAX		64	/* maximum of spill_path_count, as in lib/config */

struct reader;

struct knobs {
	uint64_t grow_bytes;
	uint64_t limit_bytes;
	uint64_t budget_bytes;
	uint64_t spill_limit_bytes;
	uint64_t ring_bytes;		/* length of the ring (stream.h) on a device */
	char *spill_paths[KNOBS_SPILL_MAX];
	uint32_t spill_path_count;
	/* ACTMEM_STORE_ALLOW_*. knobs_complete() can add ACTMEM_STORE_STRICT. */
	uint32_t spill_allow;
	unsigned int names;		/* enum actmem_names, for error messages */
	bool named;			/* regions have names, and outlive the store */
	bool placed;			/* the program or the user chose nodes */
};

/* Copies the program's options. Returns 0, -EINVAL or -ENOMEM. */
int knobs_take(struct knobs *knobs, const struct actmem_xla_options *options);
void knobs_forget(struct knobs *knobs);

/*
 * Adds the directories of ACTMEM_SPILL to @knobs. On -EINVAL or -ENOMEM, @reader has the error
 * message, and @knobs has some of the directories.
 */
int knobs_read_directories(struct knobs *knobs, struct reader *reader);

/*
 * Copies @given, reads missing options from the environment, and checks that the options can be
 * combined. On -EINVAL or -ENOMEM, @words has the error message, and @knobs is empty.
 */
int knobs_complete(struct knobs *knobs, const struct knobs *given, unsigned int names,
		   char *words, size_t words_size);

/* Returns true if the error message @why names one of the spill directories. */
bool knobs_are_of_directory(const struct knobs *knobs, const char *why);

/*
 * Copies the error message of the last library call into @words. @knobs->names selects how the
 * message names knobs.
 */
void knobs_error(const struct knobs *knobs, char *words, size_t words_size);

#endif /* LIB_XLA_KNOBS_H */
