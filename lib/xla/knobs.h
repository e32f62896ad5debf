/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * How the store of blocks is to be: as the program said, else as the environment
 * says.
 */
#ifndef ACTMEM_XLA_KNOBS_H
#define ACTMEM_XLA_KNOBS_H

#include <stddef.h>
#include <stdint.h>

#include "xla/actmem_xla.h"

#define KNOBS_SPILL_MAX		64	/* directories */
#define KNOBS_RING_LEAST	(UINT64_C(128) << 10)

struct knobs {
	uint64_t grow_bytes;
	uint64_t limit_bytes;
	uint64_t budget_bytes;
	uint64_t spill_limit_bytes;
	uint64_t ring_bytes;		/* of device memory */
	char *spill_paths[KNOBS_SPILL_MAX];
	uint32_t spill_path_count;
	uint32_t spill_allow;		/* ACTMEM_STORE_ALLOW_* */
	int named;			/* the regions are, and outlive the store */
	int placed;			/* on which nodes has been said */
};

/* Copies what the program says; -EINVAL, -ENOMEM with words. */
int knobs_take(struct knobs *knobs, const struct actmem_xla_options *options);
void knobs_forget(struct knobs *knobs);

/*
 * Fills what @given does not say from the environment, and sees that all of it can be
 * meant together. -EINVAL, -ENOMEM: why in @words, and nothing in @knobs.
 */
int knobs_complete(struct knobs *knobs, const struct knobs *given, char *words,
		   size_t words_size);

/* Why the last call of the library failed, with the knobs as Python knows them. */
void knobs_error(const struct knobs *knobs, char *words, size_t words_size);

#endif /* ACTMEM_XLA_KNOBS_H */
