/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies between a GPU and blocks of the store, mostly on streams other than XLA's. A lane has the
 * streams, events and threads for the copies of one CUDA context of a device. stream.c makes and
 * ends lanes. stream_copy.c enqueues the copies that the handlers need. stream_threads.c has a
 * lane's two threads, the finisher and the fetcher. Green contexts use the lane of the primary
 * context, which owns their memory. A green context cannot have its own lane: a lane's context is
 * current in several threads, but a green context can be current in only one thread at a time.
 *
 * XLA enqueues all uses of operands and results on its own stream. So XLA can reuse an operand's
 * memory as soon as its stream has passed the call of actmem_put. Therefore actmem_put copies its
 * operand on XLA's stream, into a span: consecutive slots of a ring in device memory. The lane's
 * stream `out` copies the value from the span into the block. If `out` is still copying an earlier
 * value from the span, XLA's stream first waits, on the device, until that copy has ended. When the
 * copy to the block is done, the finisher commits the block.
 *
 * If the fetcher has filled a span with the block that the program takes, actmem_take copies the
 * value from the span on XLA's stream. If no span contains the block, the stream `late` copies the
 * block directly into the result, after XLA's stream has reached the call of actmem_take. XLA's
 * stream waits for that copy.
 *
 * Only events order the copies, and a stream waits for an event only after the event was recorded.
 * So the device never waits for the host. The host may wait anywhere: for the device, for memory or
 * a disk, or inside a CUDA call that waits for the whole device. For example, if a block is on a
 * disk, actmem_take waits for the disk before it enqueues the copy.
 *
 * A stream must not wait for a memory word that the host writes (cuStreamWaitValue32). Streams
 * share a card's hardware queues, so a copy that must end before the host writes the word can be
 * queued behind the wait. This would be a deadlock. A CUDA call that waits for the device, such as
 * the one that registers a new region, would wait for that word, too.
 *
 * If the block is in memory, actmem_take waits only for the token, which it can read when XLA's
 * stream reaches the call. If the program announces a layer's calls of actmem_take (announce.c),
 * the host reads all their tokens in one wait. Otherwise, each call waits.
 *
 * Each call of actmem_take holds its block in memory until XLA's stream has reached the call.
 * Meanwhile, another device may wait for memory that the block occupies, and XLA's stream may wait
 * for that device in a collective operation. This would be a deadlock. So three rules apply if
 * devices share a budget. An announced call whose block is not on the device holds the block only
 * when the stream has reached the call. The fetcher refills slots only after the device has emptied
 * them. And the fetcher's copies (stream `ahead`) together may have at most half as many bytes
 * under way as the copies of actmem_put. The reason for the last rule is that such a copy can be
 * behind XLA's stream in a hardware queue. Such a copy keeps its block in memory as long as XLA's
 * stream waits.
 */
#ifndef LIB_XLA_STREAM_H
#define LIB_XLA_STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "xla/counts.h"
#include "xla/cuda.h"
#include "xla/saved.h"

#define PUT_SLOTS	16
#define TAKE_SLOTS	16
#define SLOTS		(PUT_SLOTS + TAKE_SLOTS)
/*
 * Maximum number of slots for one copy of actmem_put. While the device empties the slots of one
 * copy, the next copy can use the rest of the slots.
 */
#define PUT_SPAN_MAX	(PUT_SLOTS / 2)
#define MAILBOXES	16
#define MAILBOX_TOKENS	256
#define SLOT_ALIGN	UINT64_C(4096)

/* A part of the ring. The events of a span are those of its last slot. */
struct slot {
	cuda_event filled;		/* recorded after the copy into the span */
	cuda_event empty;		/* recorded after the copy from the span */
	/*
	 * @emptied is the event `empty` of the latest span that contained the slot. For a slot that
	 * actmem_put uses, @put_number is the number of that span.
	 */
	cuda_event emptied;
	uint64_t put_number;
};

/* An event of the lane: free, or used by a copy. */
struct mark {
	struct mark *next;
	cuda_event event;
};

/* Host memory to which the device copies tokens, for the host to read. */
struct mailbox {
	struct mailbox *next;
	struct token *tokens;		/* pinned */
	cuda_event event;
};

/* A block that was prefetched into slots of the ring. */
struct staged {
	struct lane *lane;
	uint64_t bytes;
	struct mark *ready;		/* recorded after the copy into the slots */
	unsigned int first, count;	/* first slot, number of slots */
	bool is_taken;
};

/* The finisher's work after the event of @mark, for one of @put, @take and @key. */
struct finish {
	struct finish *next;
	struct mark *mark;
	struct saved *put;		/* the block to commit */
	struct claim *take;		/* the claim to release */
	struct actmem_key key;		/* key of the block to release after a prefetch */
	uint64_t token, bytes;		/* token and length of the block */
};

struct lane {
	struct lane *next;
	uint32_t device;
	cuda_context context;
	unsigned long long context_id;
	uint64_t slot_bytes;
	cuda_stream out, ahead, late;
	cuda_pointer ring;
	struct slot slots[SLOTS];
	struct token *tokens;		/* memory for the tokens of all mailboxes */
	struct mailbox mailboxes[MAILBOXES];

	/* Protected by the list's lock. */
	unsigned int users;		/* handlers that use the lane */
	bool is_dead;			/* its context has ended */

	pthread_mutex_t lock;		/* protects all fields below and the order of stream work */
	pthread_cond_t finishes_come, takes_come, mailboxes_come, is_finished;
	unsigned int next_put;		/* first slot for the next call of actmem_put */
	uint64_t put_count;		/* spans used so far to put values */
	uint32_t free_slots;		/* for prefetched blocks; bit 0 is slot PUT_SLOTS */
	struct mark *free_marks;
	struct mailbox *free_mailboxes;
	struct finish *finishes, **last_finish;
	uint64_t put_bytes;		/* bytes of blocks that are being reserved and filled */
	uint64_t put_bytes_most;	/* limit of put_bytes; 0 if devices share no budget */
	uint64_t ahead_bytes;		/* bytes of blocks that are being prefetched */
	uint64_t unfinished;		/* finishes queued or running; also read without the lock */
	uint64_t takes;			/* incremented to wake the fetcher */
	int64_t take_run;		/* execution that stored the last taken block */
	uint64_t staged_bytes;		/* length of staged blocks; also read without the lock */
	bool is_fetching;		/* 1: the fetcher works, or is about to */
	bool is_ending;
	pthread_t finisher, fetcher;
};

/*
 * Returns the lane of @stream's context. Makes the lane if necessary. The context is current until
 * lane_leave(). Returns NULL on failure, with an error message in @words and a negative errno in
 * *@error.
 */
struct lane *lane_enter(uint32_t device, cuda_stream stream, char *words, int *error);
void lane_leave(struct lane *lane);

/*
 * Returns true if the lane's context still exists; the lane's streams and events then exist, too.
 * Compares ids of contexts, because a new context may have the same handle as a context that has
 * ended.
 */
bool lane_has_context(const struct lane *lane);

/*
 * Called before actmem_put reserves a block of @bytes. Waits until enough earlier blocks are
 * filled. The unfilled blocks of one device must not use up the whole budget: this device can be
 * waiting for another device, whose host thread waits for memory. lane_put() or lane_put_ended()
 * ends the admission.
 */
void lane_admit(struct lane *lane, uint64_t bytes);
void lane_put_ended(struct lane *lane, uint64_t bytes);

/*
 * Copies a value into @block, in the order of @stream. On failure, removes @block (saved_undo()).
 */
int lane_put(struct lane *lane, cuda_stream stream, cuda_pointer value, struct saved *block,
	     char *words);
/* Writes the token of example 0 of block @id to @to, in the order of @stream. */
int lane_write_token(struct lane *lane, cuda_stream stream, cuda_pointer to, uint64_t id,
		     char *words);

/* Copies tokens on the device. Enqueued on @stream; does not wait. */
int lane_copy_tokens(struct lane *lane, cuda_stream stream, cuda_pointer to, cuda_pointer from,
		     uint64_t count, char *words);
/*
 * Enqueues work that zeroes a buffer of XLA. The buffer's memory is @bytes long, rounded up to a
 * multiple of 4.
 */
int lane_clear(struct lane *lane, cuda_stream stream, cuda_pointer to, uint64_t bytes,
	       char *words);

/*
 * Copies up to MAILBOX_TOKENS tokens to the host. Waits until the device has done all earlier work
 * on @stream.
 */
int lane_read_tokens(struct lane *lane, cuda_stream stream, const cuda_pointer *from,
		     unsigned int count, struct token *tokens, char *words);
/*
 * Returns true if the host need not wait, for an announced take, until XLA's stream has reached the
 * take.
 */
bool lane_may_run_ahead(const struct lane *lane, bool is_staged);
/* Copies @bytes of a claimed block to @value. Releases the claim, even after a failure. */
int lane_take(struct lane *lane, cuda_stream stream, cuda_pointer value, struct claim *claim,
	      uint64_t bytes, char *words);

/* Wakes the fetcher because the stream has advanced: the device may have emptied slots. */
void lane_look_again(struct lane *lane);

/* Return the number of slots that @bytes need, and the address of a slot. */
unsigned int lane_slots_for(const struct lane *lane, uint64_t bytes);
cuda_pointer lane_slot_memory(const struct lane *lane, unsigned int slot);

/* Frees the slots of @staged. Caller holds the lane's lock. */
void lane_unstage(struct lane *lane, struct staged *staged);

/*
 * lane_mark() allocates an event, or returns NULL. lane_unmark() frees it. Caller holds the lane's
 * lock.
 */
struct mark *lane_mark(struct lane *lane);
void lane_unmark(struct lane *lane, struct mark *mark);

/*
 * Queues the work @what for the finisher, which does it for @block after the event of @mark.
 * Returns 0 or -ENOMEM. Caller holds the lane's lock.
 */
int lane_finish(struct lane *lane, struct mark *mark, const struct saved *block,
		struct finish what);

/* Waits until the device has done all work on a stream of the lane or of XLA. */
void lane_wait_for_stream(const struct lane *lane, cuda_stream stream);

/* Starts the finisher and the fetcher. Returns 0 or a positive errno. */
int lane_start_threads(struct lane *lane);
void lane_end_threads(struct lane *lane);

#endif /* LIB_XLA_STREAM_H */
