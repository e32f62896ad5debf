/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libactmem_xla: what the Python module calls beside the two XLA handlers.
 *
 * actmem_put copies its first operand into a block of actmem memory and
 * returns a token, uint32[2]; actmem_take copies the block that a token names
 * into its result and gives the block back. A token is good for one take.
 *
 * XLA tells nobody that an execution failed or was thrown away, so what such
 * a forward pass put is found by counting: the puts of one site (a call of a
 * checkpointed function in a program) in one XLA run on one device are a
 * generation, unfinished until all of it is taken. A site that begins a
 * generation while it has as many unfinished ones as it may have loses its
 * oldest.
 */
#ifndef ACTMEM_XLA_H
#define ACTMEM_XLA_H

#include <stddef.h>
#include <stdint.h>

#include "actmem.h"

#define ACTMEM_XLA_API __attribute__((visibility("default")))
#define ACTMEM_XLA_DEVICES_MAX	256
#define ACTMEM_XLA_GENERATIONS	2

/* *_total only rise, the others return to 0. All bytes are as put. */
struct actmem_xla_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t live_blocks;
	uint64_t live_bytes;
	uint64_t live_bytes_peak;
	uint64_t puts_total;
	uint64_t put_bytes_total;
	uint64_t takes_total;
	uint64_t take_bytes_total;
	uint64_t last_run_put_bytes;	/* of the latest XLA run that put */
	uint64_t last_run_take_bytes;	/* of the latest XLA run that took */
	uint64_t reclaimed_blocks_total;	/* by the limit on generations */
	uint64_t reclaimed_bytes_total;
	uint64_t reset_blocks_total;	/* by actmem_xla_reset() */
	uint64_t checksums_total;	/* blocks whose checksum was compared */
	uint64_t generations;		/* unfinished ones */
	uint64_t generations_max;	/* per site and device; 0: no limit */
	uint64_t checksum;		/* 1: blocks are checksummed */
};

struct actmem_xla_device_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t live_bytes;
	uint64_t live_bytes_peak;
	uint64_t put_bytes_total;
	uint64_t take_bytes_total;
};

/*
 * Takes blocks from @am, which stays the caller's and open. @grow_bytes and
 * @limit_bytes: see struct actmem_heap_options; 0: as ACTMEM_HEAP_GROW and
 * ACTMEM_HEAP_LIMIT say. Without this call the first put opens a backend as
 * the environment says.
 *
 * -EBUSY  memory is attached already
 */
ACTMEM_XLA_API int actmem_xla_attach(struct actmem *am, uint64_t grow_bytes,
				     uint64_t limit_bytes);

/*
 * Before @am is closed: it is not used any more, unless blocks come from it
 * already. Then it stays, and its heap keeps actmem_close() from succeeding.
 */
ACTMEM_XLA_API void actmem_xla_detach(struct actmem *am);

/* What blocks are taken from, NULL before the first use. */
ACTMEM_XLA_API struct actmem *actmem_xla_attached(void);

/* Gives regions without live blocks back to the machine. */
ACTMEM_XLA_API int actmem_xla_trim(void);

ACTMEM_XLA_API void actmem_xla_set_generations(uint64_t most);
ACTMEM_XLA_API void actmem_xla_set_checksum(int on);

/* -EINVAL: @stats->size was not set; -ERANGE: no such device. */
ACTMEM_XLA_API int actmem_xla_stats(struct actmem_xla_stats *stats);
ACTMEM_XLA_API int actmem_xla_device_stats(uint32_t device,
					   struct actmem_xla_device_stats *stats);

/* Frees every live block and says how many they were. */
ACTMEM_XLA_API uint64_t actmem_xla_reset(void);

#endif /* ACTMEM_XLA_H */
