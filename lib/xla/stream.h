/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies between a GPU and blocks of the store, on streams of its own. A lane is what
 * one CUDA context of a device has for that: stream.c makes and ends it, stream_copy.c
 * has what handlers do, stream_threads.c what its two threads do. Green contexts use the lane of
 * the primary context, which owns their memory. They could not have one each: only one thread at a
 * time may have a green context current.
 *
 * XLA uses an operand again, and a result for the first time, in the order of its own
 * stream. So a put copies its operand into a run of slots of a ring there, one behind the
 * other, and the lane's stream `out` from there into the block; XLA's stream waits for the
 * run, on the device, while `out` is still at it. When the copy is done, the finisher commits
 * the block. A take finds its block in a run already, by the fetcher, and copies from there
 * on XLA's stream; or, if not, it has the stream `late` copy straight into the result
 * once XLA's stream has come to the take, and XLA's stream wait for that.
 *
 * Events alone give the order, and a stream waits for an event only once it was recorded.
 * So the device never waits for the host. The host may wait anywhere: for the device, for
 * memory or a disk, or inside a call of CUDA that waits for the whole device. This is why the
 * host waits in a take whose block is on a disk.
 *
 * No stream may wait for a word that the host writes (cuStreamWaitValue32). Streams share a
 * card's hardware queues, so the copy that the host queues before it writes that word can be
 * behind the wait. And a CUDA call that waits for the device, such as the one that registers
 * a new region, would wait for that word too.
 *
 * If a block is in memory, the host waits only until it can read the take's token. The token is
 * there when the stream reaches the take. The host reads the tokens of a layer in one
 * wait if the program announces its takes (announce.c). Other takes wait one by one.
 *
 * A take holds its block in memory until the stream has come to it. Another device may
 * wait for that memory, while the stream waits for that device's part of a collective. So
 * where devices share a budget, a take that is announced still waits unless its block is
 * on the device, and slots are filled anew only once the device has emptied them.
 */
#ifndef ACTMEM_XLA_STREAM_H
#define ACTMEM_XLA_STREAM_H

#include <pthread.h>
#include <stdint.h>

#include "xla/counts.h"
#include "xla/cuda.h"
#include "xla/saved.h"

#define PUT_SLOTS	16
#define TAKE_SLOTS	16
#define SLOTS		(PUT_SLOTS + TAKE_SLOTS)
/* Of one copy of a put, so that the next can begin while the device empties them. */
#define PUT_RUN_MAX	(PUT_SLOTS / 2)
#define MAILBOXES	16
#define MAILBOX_TOKENS	256
#define SLOT_ALIGN	UINT64_C(4096)

/* A part of the ring. The events of a run are those of its last slot. */
struct slot {
	cuda_event filled;		/* recorded once the run has all of a copy */
	cuda_event empty;		/* recorded once it has been copied from */
	/* Of the run that it was in last: that one's event, and for puts how many came before. */
	cuda_event emptied;
	uint64_t run;
};

/* An event of the lane's, free or of a copy. */
struct mark {
	struct mark *next;
	cuda_event event;
};

/* Memory of the host that tokens are copied to, to be read. */
struct mailbox {
	struct mailbox *next;
	struct token *tokens;		/* pinned */
	cuda_event event;
};

/* A block that the device has, in slots. */
struct staged {
	struct lane *lane;
	uint64_t bytes;
	struct mark *ready;
	unsigned int first, count;	/* slots */
};

/* The finisher's work when an event has been reached. */
struct finish {
	struct finish *next;
	struct mark *mark;
	struct saved *filled;		/* is committed; NULL: @read is released instead */
	struct actmem_key read;
	uint64_t token, bytes;		/* of either */
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
	struct token *tokens;		/* of the mailboxes */
	struct mailbox mailboxes[MAILBOXES];

	/* Under the list's lock. */
	unsigned int users;		/* handlers */
	int is_dead;			/* its context has ended */

	pthread_mutex_t lock;		/* of all that follows, and the order on streams */
	pthread_cond_t finishes_come, takes_come, mailboxes_come, is_finished;
	unsigned int next_put;		/* slot */
	uint64_t put_runs;		/* that were copied through */
	uint32_t free_slots;		/* bits: of those for takes, which follow those for puts */
	struct mark *free_marks;
	struct mailbox *free_mailboxes;
	struct finish *finishes, **last_finish;
	uint64_t put_bytes;		/* of blocks being reserved and filled... */
	uint64_t put_bytes_most;	/* ...and their limit; 0: no budget is shared */
	uint64_t unfinished;		/* read without the lock too, as staged_bytes */
	uint64_t takes;			/* and what else has the fetcher look again */
	int64_t take_run;		/* of the puts of the latest */
	uint64_t staged_bytes;
	int is_fetching;		/* or about to */
	int is_ending;
	pthread_t finisher, fetcher;
};

/*
 * The lane of the context that @stream is of, made if it is the first; the context is
 * current until lane_leave(). NULL: why in @words and *@ret.
 */
struct lane *lane_enter(uint32_t device, cuda_stream stream, char *words, int *ret);
void lane_leave(struct lane *lane);

/* Whether its streams and events are still there: a handle may be another context's. */
int lane_has_context(const struct lane *lane);

/*
 * Before a block of @bytes is reserved. A device may have to wait for another one, whose
 * host thread waits for memory: so none has all of the budget in blocks that it has yet
 * to fill. Waits until enough of them are. Ends by lane_put() or lane_put_ended().
 */
void lane_admit(struct lane *lane, uint64_t bytes);
void lane_put_ended(struct lane *lane, uint64_t bytes);

/* Puts a value, in the order of @stream. A failure ends @block. */
int lane_put(struct lane *lane, cuda_stream stream, cuda_pointer value, struct saved *block,
	     char *words);
/* Writes the token of example 0 of the block of that id. */
int lane_write_token(struct lane *lane, cuda_stream stream, cuda_pointer to, uint64_t id,
		     char *words);

/* On the device, as it comes to that. */
int lane_copy_tokens(struct lane *lane, cuda_stream stream, cuda_pointer to, cuda_pointer from,
		     uint64_t count, char *words);
/* Has the device write 0 to all of a buffer of XLA's, whose memory is of whole words. */
int lane_clear(struct lane *lane, cuda_stream stream, cuda_pointer to, uint64_t bytes,
	       char *words);

/* Reads up to MAILBOX_TOKENS tokens. Waits until the device has reached this call. */
int lane_read_tokens(struct lane *lane, cuda_stream stream, const cuda_pointer *from,
		     unsigned int count, struct token *tokens, char *words);
/* Whether a take may do without that wait. */
int lane_may_run_ahead(const struct lane *lane, int is_staged);
/* Takes a claimed block, which ends in any case. */
int lane_take(struct lane *lane, cuda_stream stream, cuda_pointer value, struct saved *block,
	      char *words);
/* Takes @bytes of it, from @offset on. Waits until they are copied. */
int lane_take_part(struct lane *lane, cuda_stream stream, cuda_pointer value,
		   struct saved *block, uint64_t offset, uint64_t bytes, char *words);

/* The stream has come further since the last take: the device may have emptied slots. */
void lane_look_again(struct lane *lane);

/* How many slots so many bytes need, and where the first of a run is. */
unsigned int lane_slots_for(const struct lane *lane, uint64_t bytes);
cuda_pointer lane_slot_memory(const struct lane *lane, unsigned int slot);

/* With the lane's lock held: what is staged is needed no more, and was copied or not. */
void lane_unstage(struct lane *lane, struct staged *staged);

/* Likewise: have an event to record, NULL if there can be none, and give it back. */
struct mark *lane_mark(struct lane *lane);
void lane_unmark(struct lane *lane, struct mark *mark);

/* Likewise: finishes one of the blocks once @mark is reached. 0 or -ENOMEM. */
int lane_finish(struct lane *lane, struct mark *mark, struct saved *filled,
		const struct saved *read);

/* Waits until the device has done all that is on a stream, the lane's or XLA's. */
void lane_wait_for_stream(const struct lane *lane, cuda_stream stream);

/* 0, or an errno. */
int lane_start_threads(struct lane *lane);
void lane_end_threads(struct lane *lane);

#endif /* ACTMEM_XLA_STREAM_H */
