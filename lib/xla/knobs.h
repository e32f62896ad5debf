/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The options of the store of blocks, from the program or else from the environment. The
 * command `actmem run` links this file too, to check the environment.
 */
#ifndef ACTMEM_XLA_KNOBS_H
#define ACTMEM_XLA_KNOBS_H

#include <stddef.h>
#include <stdint.h>

#include "xla/actmem_xla.h"

#define KNOBS_SPILL_MAX		64	/* directories, as the table of knobs says */

struct knobs {
	uint64_t grow_bytes;
	uint64_t limit_bytes;
	uint64_t budget_bytes;
	uint64_t spill_limit_bytes;
	uint64_t ring_bytes;		/* of device memory */
	char *spill_paths[KNOBS_SPILL_MAX];
	uint32_t spill_path_count;
	uint32_t spill_allow;		/* ACTMEM_STORE_ALLOW_*, and _STRICT once complete */
	unsigned int names;		/* enum actmem_names, for words */
	int named;			/* regions have names, and outlive the store */
	int placed;			/* program or user said on which nodes */
};

/* Copies what the program says; -EINVAL, -ENOMEM with words. */
int knobs_take(struct knobs *knobs, const struct actmem_xla_options *options);
void knobs_forget(struct knobs *knobs);

/*
 * Copies @given, takes options that it leaves out from the environment, and checks that they
 * go together. -EINVAL, -ENOMEM: why in @words, and nothing in @knobs.
 */
int knobs_complete(struct knobs *knobs, const struct knobs *given, unsigned int names,
		   char *words, size_t words_size);

/* Whether the library's words are about one of the directories to spill to. */
int knobs_are_of_directory(const struct knobs *knobs, const char *why);

/* Why the last call of the library failed, with the knobs as their user knows them. */
void knobs_error(const struct knobs *knobs, char *words, size_t words_size);

#endif /* ACTMEM_XLA_KNOBS_H */
