/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The table of what was put and not yet taken: token → block, with the
 * generations that abandoned blocks are found by (see actmem_xla.h).
 *
 * A block goes through saved_begin() (in the table, being filled),
 * saved_filled() (its token may be used), saved_claim() (out of the table,
 * the claimer alone has it) and saved_release() (its memory is free again).
 * A block that is reclaimed while a thread is at it is dropped when that ends.
 *
 * Where values are on a device, blocks are filled after their put has returned: a thread
 * that claims one waits for that. saved_next() reads one ahead, which is saved_staged()
 * once a device has it, and its memory free again.
 * saved_begin() and saved_claim() may wait for the store where blocks are spilled.
 */
#ifndef ACTMEM_XLA_SAVED_H
#define ACTMEM_XLA_SAVED_H

#include <stdint.h>

#include "xla/block.h"

/* 0 with *@block, or a negative errno and why in @words[SAVED_WORDS]. */
int saved_begin(const struct origin *origin, uint64_t bytes,
		struct saved **block, char *words);
void saved_filled(struct saved *block);

/* Instead, if it could not be filled: its take fails with @error and @why. */
void saved_failed(struct saved *block, int error, const char *why);

/* Instead, if its put fails: it was never there. */
void saved_undo(struct saved *block);

/*
 * saved_announce() notes that the execution of @taker will take the block @token, as @number
 * of the site that it was put at. It fails as that take would, with @words[SAVED_WORDS], if
 * there is no such block. saved_announced() returns the block that the take of that site and
 * number wants, or 0 if only the take's operand names it. *@is_staged is whether the device
 * has the block already. Only blocks of one example are announced.
 */
int saved_announce(uint64_t token, const struct origin *taker, uint32_t number, char *words);
uint64_t saved_announced(const struct origin *taker, uint32_t number, int *is_staged);

/*
 * For a take of @rows, which are @bytes, on the device of the put. A taker that ends its
 * tokens ends a reference for each. The block leaves the table with its last reference;
 * before, it stays there, and others may read it, too. Fails if the block's examples are of
 * another shape than the taker's.
 */
int saved_claim(const struct rows *rows, uint64_t bytes, const struct origin *taker,
		struct saved **block, char *words);
/* Returns the offset of the first of @rows in the memory of a claimed block. */
uint64_t saved_offset(const struct saved *block, const struct rows *rows);
void saved_release(struct saved *block);

/*
 * Add @count references to the block of that id, and end as many. The last one ends the
 * block. Neither does anything if the block is gone, or @id is 0.
 */
void saved_hold(uint64_t id, uint64_t count);
void saved_end(uint64_t id, uint64_t count);

/*
 * The block that is expected to be wanted next, held: the youngest on GPU @device of the
 * execution that @run put, of @bytes_max at most. NULL: none, or it is not to be had.
 */
struct saved *saved_next(uint32_t device, int64_t run, uint64_t bytes_max);
/*
 * saved_staged(): a device will have it, as @staged, which @unstage ends if nobody claims
 * it; the caller calls memory_release() once the device has it. saved_not_staged() leaves
 * it as it was.
 */
void saved_staged(struct saved *block, void *staged, void (*unstage)(void *staged));
void saved_not_staged(struct saved *block);

/* Whether new blocks are to be checksummed. */
int saved_checksum(void);
/* One more block's checksum was compared. */
void saved_checksum_compared(void);
/* The name of the site that a token was made at, "?" if there is none. */
const char *saved_site_name(uint64_t token);

#endif /* ACTMEM_XLA_SAVED_H */
