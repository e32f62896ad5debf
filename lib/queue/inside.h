/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The inside of a queue: sets of files, striped, requests, the blocks that they are done
 * in, and the engines that do them.
 */
#ifndef LIB_QUEUE_INSIDE_H
#define LIB_QUEUE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "actmem_queue.h"
#include "base/base.h"
#include "queue/queue.h"
#include "region/region.h"

#define QUEUE_WORDS	512
#define PIECE_MOST	(1ULL << 30)	/* the longest registered buffer */

/* Requests in order, and how many of their blocks may be under way. */
struct request_lane {
	struct link pending;
	unsigned int under_way, depth;
};

struct stripe {
	int fd;
	uint16_t slot;			/* in the ring's table of files */
	char *path;			/* for words */
};

struct actmem_file {
	struct link link;		/* of its queue */
	struct actmem_queue *queue;
	struct held held;
	int descriptors[ACTMEM_FILE_PATHS_MAX];
	struct request_lane lane;
	unsigned int requests;		/* under way */
	bool read_only, direct, rotational;
	uint64_t alignment, memory_alignment, block_bytes, stripe_bytes;
	uint64_t request_bytes;		/* the longest of its devices; 0: not known */
	unsigned int count;
	struct stripe stripes[];
};

enum request_kind {
	REQUEST_FILL,
	REQUEST_SPILL,
	REQUEST_POPULATE,
	REQUEST_DISCARD,
};

/* A region that transfers may use. */
struct attachment {
	struct link link;		/* of the queue */
	struct actmem_region *region;
	char *address;
	uint64_t length;
	unsigned int requests;		/* under way */
	bool plain;			/* not in registered buffers */
	uint64_t piece_bytes;		/* of each but the last */
	unsigned int pieces;
	unsigned int held;		/* pieces that the kernel still has */
	uint16_t *slots;		/* of each piece, in the ring's table of buffers */
};

struct request {
	struct link link;		/* of all that are under way; or that have ended */
	struct link pending;		/* of its lane, while blocks are left to be begun */
	struct link timed;		/* of those with a deadline, the earliest first */
	enum request_kind kind;
	uint64_t id, cookie, deadline;
	uint64_t since;			/* ns, of the last tick */
	struct request_lane *lane;
	struct actmem_file *file;	/* fill and spill */
	struct attachment *attachment;	/* fill and spill */
	struct actmem_region *region;
	uint64_t offset;		/* in the region */
	uint64_t file_offset;		/* fill and spill */
	uint64_t length;
	uint64_t begun, done;		/* bytes */
	uint64_t blocks;		/* begun */
	unsigned int under_way;		/* blocks */
	int error;			/* it is to end with this errno, and begins no more */
	int64_t failed_block;		/* the first that failed; -1: ended from outside */
	char words[];			/* ERROR_TEXT_MAX; of a draft, none */
};

/* A part of a request that is done at once; in the hands of an engine. */
struct transfer {
	struct link link;		/* the engine's */
	struct request *request;
	uint64_t number;		/* in its request, from 0 */
	uint64_t at;			/* in the request */
	uint64_t length, done;
	uint64_t file_offset;		/* in the one file */
	char *memory;
	unsigned int stripe;		/* which file */
	unsigned int piece;		/* of the attachment */
	unsigned int repeats;		/* in a row, without progress */
	bool cancelled;			/* the kernel has been asked to */
	struct backend_command command;	/* of a ring; set for none but commands */
};

struct actmem_queue;

/*
 * Those that can fail return 0 or a negative errno with words. Called under the
 * queue's lock: wake, listen, attend and cancel.
 */
struct engine {
	enum actmem_engine kind;
	int (*start)(struct actmem_queue *queue);
	/* Nothing is under way, attached or open. */
	void (*stop)(struct actmem_queue *queue);
	/* There may be blocks to begin: asks for rouse(), if that is needed. */
	void (*wake)(struct actmem_queue *queue);
	void (*rouse)(struct actmem_queue *queue);
	/* Has a thread that tells of what ends, whatever the others are doing. */
	int (*listen)(struct actmem_queue *queue);
	/* For that one: it is to notify, or another deadline is the first. */
	void (*attend)(struct actmem_queue *queue);
	/* Has the blocks of a request come back soon, if it can. */
	void (*cancel)(struct actmem_queue *queue, struct request *request);
	int (*attach)(struct actmem_queue *queue, struct attachment *attachment);
	void (*detach)(struct actmem_queue *queue, struct attachment *attachment);
	int (*add_file)(struct actmem_queue *queue, struct actmem_file *file);
	void (*remove_file)(struct actmem_queue *queue, struct actmem_file *file);
};

extern const struct engine engine_uring;
extern const struct engine engine_workers;

struct workers {
	pthread_t threads[ACTMEM_QUEUE_WORKERS_MAX];
	pthread_cond_t work;
	unsigned int count, idle, limit;
	pthread_t watcher;		/* does no blocks, and sees to deadlines */
	pthread_cond_t watch;
	bool has_watcher;
	bool ending;
};

struct actmem_queue {
	struct actmem *am;
	struct published_wait *wait;	/* where its oldest request is told; NULL: nowhere */
	uint64_t published_id;		/* of that, what is told there; 0: of none */
	const struct actmem_file *published_file;	/* whose name; NULL: of no file */
	struct actmem_queue_options options;
	const struct engine *engine;
	struct uring *uring;		/* of that engine */
	pthread_mutex_t lock;
	pthread_cond_t completed;
	struct link files;		/* the one to be served next is the first */
	struct link attachments;
	unsigned int file_count, attachment_count;
	struct request_lane commands;	/* that threads do */
	struct request_lane sent_commands; /* that the ring does */
	struct link under_way, ended, timed;
	bool listens;			/* the engine does */
	void (*notify)(void *data);	/* of queue_notify_by(), or NULL */
	void *notify_data;
	bool to_notify;			/* of completions that it does not know of */
	bool notifying;			/* it runs */
	int event;			/* of actmem_queue_eventfd(), -1: not yet */
	struct held held;		/* that */
	bool to_raise;			/* the event: completions have come since */
	struct link unused;		/* requests to be used again */
	unsigned int waiting;		/* threads in actmem_queue_wait() */
	unsigned int to_tell;		/* completions that they do not know of */
	bool to_rouse;			/* the engine */
	uint64_t next_id;
	struct actmem_queue_stats stats;
	struct workers workers;
	bool sends_commands;		/* those of its backend's regions, by the ring */
	atomic_bool is_plain;		/* the kernel refused to register a region */
	char description[QUEUE_WORDS];
	char plain_description[QUEUE_WORDS];
};

/* -EOWNERDEAD or -EINVAL with words, of a queue that is none of this process. */
int queue_refuse(const struct actmem_queue *queue, const char *call) __attribute__((cold));

/* 0 or that. */
static inline int queue_check(const struct actmem_queue *queue, const char *call)
{
	return queue && is_owner(queue->am) ? 0 : queue_refuse(queue, call);
}

struct attachment *queue_attachment(struct actmem_queue *queue,
				    const struct actmem_region *region);

/*
 * Where byte @offset of the set lies: the file, and the offset in it. Returns how
 * many bytes follow there.
 */
uint64_t file_locate(const struct actmem_file *file, uint64_t offset, unsigned int *stripe,
		     uint64_t *file_offset);

/*
 * Gives the lock back, and only then wakes those who are to be, as they would want
 * it at once. A thread that is about to sleep with the lock wakes them before.
 */
void queue_unlock(struct actmem_queue *queue);
void queue_tell(struct actmem_queue *queue);

/* The functions below are called with the queue's lock held. */

/* Cuts off the next block of any file, or of these commands; false: there is none. */
bool queue_begin_transfer(struct actmem_queue *queue, struct transfer *block);
bool queue_begin_command(struct request_lane *commands, struct transfer *block);

/* Whether there is one; of the commands that threads do. */
bool queue_has_transfer(const struct actmem_queue *queue);
bool queue_has_command(const struct actmem_queue *queue);

/*
 * Takes the result of a system call for the rest of a block: bytes or a negative errno. True:
 * the block is to go on, from @done; else it has been handed back.
 */
bool queue_continue(struct actmem_queue *queue, struct transfer *block, int64_t result);

/*
 * Whether a command that came back with this error, true of @done bytes, was interrupted
 * and not asked to end: it is sent once more, and goes on from there.
 */
bool queue_repeat_command(struct actmem_queue *queue, struct transfer *block, int error,
			  uint64_t done);

/* Hands back a block that is done, or that failed with this thread's words. */
void queue_end_transfer(struct actmem_queue *queue, struct transfer *block);
void queue_fail_transfer(struct actmem_queue *queue, struct transfer *block, int error);

/* Hands back a block that is not worth going on with, as its request is to end. */
bool queue_is_cancelled(const struct transfer *block);
void queue_give_up_transfer(struct actmem_queue *queue, struct transfer *block);

/* There is one request more or less: tells others of the oldest. */
void queue_publish(struct actmem_queue *queue);

/* Ends what is past its deadline, and says when to look again: 0, never. */
uint64_t queue_expire_timed(struct actmem_queue *queue);

static inline uint64_t queue_expire(struct actmem_queue *queue)
{
	return link_is_alone(&queue->timed) ? 0 : queue_expire_timed(queue);
}

/* A completion is there of which others are told, by the engine or the event. */
void queue_has_ended(struct actmem_queue *queue);

/* Makes an eventfd readable. */
void queue_raise(int event);

/*
 * In a thread of the engine: whether it is to notify, and does so, with the lock given
 * back meanwhile.
 */
bool queue_is_to_notify(const struct actmem_queue *queue);
void queue_notify(struct actmem_queue *queue);

void queue_free_requests(struct actmem_queue *queue);

/* Threads that do commands, and transfers where there is no ring. */
void workers_end(struct actmem_queue *queue);

/* Sees to it that there is a thread at all. The lock is held for this and the next. */
int workers_provide(struct actmem_queue *queue);

/* There is something for them to do. */
void workers_wake(struct actmem_queue *queue);

/* This thread is one of them that notifies before it does anything else. */
bool workers_are_to_notify(const struct actmem_queue *queue);

#endif /* LIB_QUEUE_INSIDE_H */
