/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The table of live blocks, which finds a block by its token. A block is live from the call of
 * actmem_put that makes it until actmem_take takes it for the last time. Each block belongs to a
 * generation: the blocks that one execution made at one site (place in a program) on one device.
 * Generations help to find abandoned blocks (actmem_xla.h).
 *
 * A block goes through four calls. saved_begin() adds the block to the table, and the caller fills
 * the block. saved_filled() allows other threads to read the block. saved_claim() claims the block
 * for a reader, and the last claim removes the block from the table. saved_release() ends a claim.
 * If the block has left the table, the last saved_release() of the block frees it. If an abandoned
 * block is reclaimed while threads use it, the last of these threads frees the block.
 *
 * On a GPU, actmem_put returns before its block is filled. saved_claim() waits until the block is
 * filled. saved_next() holds a block, so that the caller can copy the block to the device before
 * the program takes it. saved_staged() records that copy, and actmem_take then reads the copy
 * instead of the block. saved_begin() and saved_claim() can wait for the store if blocks spill.
 */
#ifndef LIB_XLA_SAVED_H
#define LIB_XLA_SAVED_H

#include <stdbool.h>
#include <stdint.h>

#include "xla/block.h"

/* Writes "actmem: " and the message to @words[SAVED_WORDS], and returns -@error. */
int saved_fail(char *words, int error, const char *format, ...)
	__attribute__((cold, format(printf, 3, 4)));

/*
 * Adds a block to the table and reserves its memory. Returns 0, or a negative errno with an error
 * message in @words[SAVED_WORDS].
 */
int saved_begin(const struct origin *origin, uint64_t bytes,
		struct saved **block, char *words);
void saved_filled(struct saved *block);

/*
 * Called instead of saved_filled() if the block could not be filled. When the program takes the
 * block, actmem_take fails with @error and the error message @why.
 */
void saved_failed(struct saved *block, int error, const char *why);

/*
 * Called instead of saved_filled() if actmem_put returns an error. Removes the block, because the
 * program cannot take it.
 */
void saved_undo(struct saved *block);

/*
 * saved_announce() records that the execution of @taker will take block @token. @number is the
 * attribute `number` of that call of actmem_take: it numbers the calls for all blocks from one
 * site. If block @token does not exist, saved_announce() fails as actmem_take would, with an error
 * message in @words[SAVED_WORDS]. Only blocks that contain one example are announced.
 *
 * saved_announced() returns the token that was announced for the call of actmem_take by @taker with
 * @number, and stores in *@is_staged whether the device has the block already. If no token or
 * several tokens were announced for this call, saved_announced() returns 0. The caller then reads
 * the token from the operand of the call.
 */
int saved_announce(uint64_t token, const struct origin *taker, uint32_t number, char *words);
uint64_t saved_announced(const struct origin *taker, uint32_t number, bool *is_staged);

/*
 * Claims a block to read @rows, whose examples have @bytes bytes in total. If @taker->ends is true,
 * drops one reference for each token. The block leaves the table when its last reference is
 * dropped. Several threads can claim a block at the same time. If blocks have checksums and the
 * block is in host memory, the store verifies the checksum. Fails if the block's device, sharding,
 * or shape of examples differs from that of @taker. saved_release() ends and frees the claim.
 */
int saved_claim(const struct rows *rows, uint64_t bytes, const struct origin *taker,
		struct claim **claim, char *words);
void saved_release(struct claim *claim);

/* The properties of an example of a block. */
struct saved_look {
	struct shape shape;
	uint64_t bytes;
	uint32_t layout;
};

/*
 * Describes a block, even if it is not filled yet. Fails if there is no such block, with an error
 * message in @words[SAVED_WORDS].
 */
int saved_look(uint64_t id, struct saved_look *look, char *words);

/*
 * saved_reference() adds @count references to block @id. saved_unreference() drops @count
 * references, and frees the block if none is left. Each call does nothing if the block has left the
 * table or @id is 0.
 */
void saved_reference(uint64_t id, uint64_t count);
void saved_unreference(uint64_t id, uint64_t count);

/*
 * Finds and holds the block that is expected to be taken next, and stores its address in *@memory.
 * This is the block that execution @run stored last on GPU @device, among the blocks that no thread
 * uses. The hold verifies the checksum. Returns NULL if there is no such block, if the block is
 * longer than @bytes_max, or if the hold fails. If the hold fails, the block's take reports the
 * error.
 */
struct saved *saved_next(uint32_t device, int64_t run, uint64_t bytes_max, const void **memory);
/*
 * After saved_next() has returned a block, the caller calls saved_staged() or saved_not_staged().
 * saved_staged() records that the block is being copied to the device; @staged is the copy. When
 * the block is freed, @unstage frees @staged. The caller calls memory_release() when the copy has
 * ended. saved_not_staged() is called if no copy was made; the block then stays in the store.
 */
void saved_staged(struct saved *block, void *staged, void (*unstage)(void *staged));
void saved_not_staged(struct saved *block);

/*
 * Returns the name of the site at which the block of @token was stored, or "?" if there is no such
 * site.
 */
const char *saved_site_name(uint64_t token);

#endif /* LIB_XLA_SAVED_H */
