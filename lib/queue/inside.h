/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Structs of a queue: striped sets of files, requests, blocks of requests, and engines. */
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

struct stripe {
	int fd;
	uint16_t slot;			/* index in the table of files of the io_uring ring */
	char *path;			/* for error messages */
};

struct actmem_file {
	struct link link;		/* in the list of its queue */
	struct actmem_queue *queue;
	struct held held;
	int descriptors[ACTMEM_FILE_PATHS_MAX];
	struct link pending;		/* requests with blocks to start, in order of arrival */
	unsigned int under_way, depth;	/* blocks under way, and their limit */
	unsigned int requests;		/* requests under way */
	bool read_only, direct, rotational;
	uint64_t alignment, memory_alignment, block_bytes, stripe_bytes;
	uint64_t request_bytes;		/* longest I/O that a device accepts; 0: unknown */
	unsigned int count;
	struct stripe stripes[];
};

enum request_kind {
	REQUEST_FILL,
	REQUEST_SPILL,
};

/* A region that is attached to a queue, so that transfers can use it. */
struct attachment {
	struct link link;		/* in the list of the queue */
	struct actmem_region *region;
	char *address;
	uint64_t length;
	unsigned int requests;		/* requests under way */
	bool plain;			/* the region is not in registered buffers */
	uint64_t piece_bytes;		/* length of each piece except the last */
	unsigned int pieces;
	unsigned int held;		/* registered pieces that the kernel has not released */
	uint16_t *slots;		/* index of each piece in the ring's table of buffers */
};

struct request {
	struct link link;		/* in queue->under_way, ended or unused */
	struct link pending;		/* in file->pending, while blocks are left to start */
	struct link timed;		/* in queue->timed: deadlines, the earliest first */
	enum request_kind kind;
	uint64_t id, cookie, deadline;
	uint64_t since;			/* ns: the last clock tick before the submission */
	struct actmem_file *file;
	struct attachment *attachment;
	uint64_t offset;		/* in the region */
	uint64_t file_offset;
	uint64_t length;
	uint64_t begun, done;		/* bytes of started and of completed blocks */
	uint64_t blocks;		/* number of started blocks */
	unsigned int under_way;		/* blocks that have not ended */
	int error;			/* the request ends with this errno; 0: none */
	int64_t failed_block;		/* first failed block; -1: cancelled, or deadline passed */
	char words[];			/* error message, ERROR_TEXT_MAX bytes */
};

/* A block: a part of a request. An engine transfers each block separately. */
struct transfer {
	struct link link;		/* in a list of the engine */
	struct request *request;
	uint64_t number;		/* index in its request */
	uint64_t at;			/* offset in the request */
	uint64_t length, done;
	uint64_t file_offset;		/* in the file of the stripe */
	char *memory;
	unsigned int stripe;		/* index of the file */
	unsigned int piece;		/* index of the attachment's piece */
	unsigned int repeats;		/* consecutive attempts that made no progress */
	bool cancelled;			/* the kernel was asked to cancel the block */
};

struct actmem_queue;

/*
 * The functions of an engine. Functions that can fail return 0, or a negative errno with an error
 * message. Callers of wake, listen, attend and cancel hold the queue's lock.
 */
struct engine {
	enum actmem_engine kind;
	int (*start)(struct actmem_queue *queue);
	/* Stops the engine. No request, region or file may be left. */
	void (*stop)(struct actmem_queue *queue);
	/*
	 * Called when there may be new blocks to start. Sets queue->to_rouse if the caller must
	 * then call rouse().
	 */
	void (*wake)(struct actmem_queue *queue);
	void (*rouse)(struct actmem_queue *queue);
	/* Ensures that a thread can report completions while all other threads are busy. */
	int (*listen)(struct actmem_queue *queue);
	/*
	 * Wakes the thread that listen() ensures. Called if that thread must call notify(), or if
	 * the next deadline is now earlier.
	 */
	void (*attend)(struct actmem_queue *queue);
	/* Interrupts the blocks of a request, if the engine can. */
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
	pthread_t watcher;		/* transfers no blocks; handles deadlines */
	pthread_cond_t watch;
	bool has_watcher;
	bool ending;
};

struct actmem_queue {
	struct actmem *am;
	struct published_wait *wait;	/* publishes the oldest request; NULL: not published */
	uint64_t published_id;		/* id of the request published in wait; 0: none */
	const struct actmem_file *published_file;	/* file whose name wait shows; NULL: none */
	struct actmem_queue_options options;
	const struct engine *engine;
	struct uring *uring;		/* state of the io_uring engine */
	pthread_mutex_t lock;
	pthread_cond_t completed;
	struct link files;		/* served next: the first file that has a block to start */
	struct link attachments;
	unsigned int file_count, attachment_count;
	struct link under_way, ended, timed;
	bool listens;			/* the engine's listen() has succeeded */
	void (*notify)(void *data);	/* set by queue_notify_by(), or NULL */
	void *notify_data;
	bool to_notify;			/* notify() must run for new completions */
	bool notifying;			/* notify() is running */
	int event;			/* result of actmem_queue_eventfd(); -1: none yet */
	struct held held;		/* makes forked children close @event */
	bool to_raise;			/* make @event readable: there are new completions */
	struct link unused;		/* free requests, to reuse */
	unsigned int waiting;		/* threads in actmem_queue_wait() */
	unsigned int to_tell;		/* number of waiting threads to wake */
	bool to_rouse;			/* call the engine's rouse() */
	uint64_t next_id;
	struct actmem_queue_stats stats;
	struct workers workers;
	atomic_bool is_plain;		/* the kernel refused to register a region */
	char description[QUEUE_WORDS];
	char plain_description[QUEUE_WORDS];
};

/*
 * Refuses a queue that was passed to the function @call. Sets an error message, and returns
 * -EOWNERDEAD if the queue was inherited by fork(), or -EINVAL if the queue is NULL.
 */
int queue_refuse(const struct actmem_queue *queue, const char *call) __attribute__((cold));

/* Returns 0, or the error of queue_refuse(). */
static inline int queue_check(const struct actmem_queue *queue, const char *call)
{
	return queue && is_owner(queue->am) ? 0 : queue_refuse(queue, call);
}

struct attachment *queue_attachment(struct actmem_queue *queue,
				    const struct actmem_region *region);

/*
 * Finds the file that contains byte @offset of the set. Sets *@stripe to the file's index, and
 * *@file_offset to the offset in the file. Returns the number of contiguous bytes from that offset.
 */
uint64_t file_locate(const struct actmem_file *file, uint64_t offset, unsigned int *stripe,
		     uint64_t *file_offset);

/*
 * queue_unlock() and queue_tell() wake the threads that wait for one of the latest changes.
 * queue_unlock() releases the lock first, so that the woken threads need not wait for the lock. A
 * thread that is about to sleep on a condition calls queue_tell(), which keeps the lock.
 */
void queue_unlock(struct actmem_queue *queue);
void queue_tell(struct actmem_queue *queue);

/*
 * Callers of the functions below hold the queue's lock, except those of queue_raise() and
 * queue_free_requests().
 */

/* Starts the next block of any file, and fills in *@block. Returns false if no block can start. */
bool queue_begin_transfer(struct actmem_queue *queue, struct transfer *block);

/* Returns true if a block can start. */
bool queue_has_transfer(const struct actmem_queue *queue);

/*
 * Handles the result of a system call that transfers the rest of a block. @result is the number of
 * bytes, or a negative errno. Returns true if the engine must continue the block from block->done.
 * Otherwise the block has ended: it succeeded, failed or was cancelled.
 */
bool queue_continue(struct actmem_queue *queue, struct transfer *block, int64_t result);

/*
 * queue_end_transfer() ends a block that succeeded. queue_fail_transfer() ends a block that failed,
 * with this thread's error message.
 */
void queue_end_transfer(struct actmem_queue *queue, struct transfer *block);
void queue_fail_transfer(struct actmem_queue *queue, struct transfer *block, int error);

/*
 * queue_is_cancelled() returns true if a block should not continue, because its request will fail.
 * queue_give_up_transfer() ends such a block.
 */
bool queue_is_cancelled(const struct transfer *block);
void queue_give_up_transfer(struct actmem_queue *queue, struct transfer *block);

/* Publishes the number of requests under way, and the oldest request. Called after changes. */
void queue_publish(struct actmem_queue *queue);

/* Ends requests that are past their deadline. Returns the next deadline; 0: none. */
uint64_t queue_expire_timed(struct actmem_queue *queue);

static inline uint64_t queue_expire(struct actmem_queue *queue)
{
	return link_is_alone(&queue->timed) ? 0 : queue_expire_timed(queue);
}

/* Reports a completion to the notify function and to the eventfd. */
void queue_has_ended(struct actmem_queue *queue);

/* Makes an eventfd readable. */
void queue_raise(int event);

/*
 * Called by threads of the engine. queue_is_to_notify() returns true if the thread should call
 * queue_notify(), which releases the lock while it calls the notify function.
 */
bool queue_is_to_notify(const struct actmem_queue *queue);
void queue_notify(struct actmem_queue *queue);

void queue_free_requests(struct actmem_queue *queue);

/*
 * Returns true if the calling thread is a worker of the queue. A worker calls the notify function
 * before it does other work, so the caller need not wake another thread to call the notify
 * function.
 */
bool workers_are_to_notify(const struct actmem_queue *queue);

#endif /* LIB_QUEUE_INSIDE_H */
