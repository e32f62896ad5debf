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
 * @token will be taken by the execution of @taker, as @number of the site that it was put
 * at: fails as its take would, with @words[SAVED_WORDS], where it is not there. And then:
 * the token that the take of that site and number wants, 0 if it is not known without a
 * look at its operand; and whether the device has the block already.
 */
int saved_announce(uint64_t token, const struct origin *taker, uint32_t number, char *words);
uint64_t saved_announced(const struct origin *taker, uint32_t number, int *is_staged);

/*
 * Whether takes of that execution are foreseen, so that none is announced; and that they
 * are no more.
 */
int saved_foresees(uint32_t device, int64_t run);
void saved_foresees_no_more(uint32_t device, int64_t run);

/*
 * The block that this take of a site of @taker's will want, as far as that is known, and no
 * token of it: NULL, if not. It leaves the table, and is at *@memory, or will be, where it
 * is still being filled. It ends by saved_foreseen(), if the take wanted it, else by
 * saved_return(), as if nobody had asked. saved_unlearn(): it was foreseen wrongly.
 */
struct saved *saved_foresee(const struct origin *taker, uint64_t bytes, const void **memory,
			    int *is_filling);
void saved_foreseen(struct saved *block);
void saved_return(struct saved *block);
void saved_unlearn(const struct saved *block);

/*
 * For a take on the device of the put. The block leaves the table if the take ends it;
 * else it stays there, for others to read as well.
 */
int saved_claim(uint64_t token, uint64_t bytes, const struct origin *taker,
		struct saved **block, char *words);
void saved_release(struct saved *block);

/*
 * saved_hold() adds a taker, and saved_end() ends one. A take that ends the block ends it
 * for all takers. A token whose block is gone, and 0, are left alone.
 */
void saved_hold(uint64_t token);
void saved_end(uint64_t token);

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
