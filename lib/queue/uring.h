/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A queue's ring, and what only the thread that has it may do to it.
 */
#ifndef LIB_QUEUE_URING_H
#define LIB_QUEUE_URING_H

#include <liburing.h>

#include "base/base.h"
#include "queue/inside.h"

#define RING_ENTRIES	ACTMEM_QUEUE_DEPTH_MAX
#define RING_BUFFERS	4096
#define RING_FILES	256

/*
 * Completions are told apart by their user_data: 0, nobody cares; the ring, the
 * eventfd; a block; an attachment with this bit, one of its buffers is released.
 */
#define RING_RELEASE	1ULL

enum ring_step {
	RING_STEP_AGAIN,
	RING_STEP_WAIT,			/* for a completion */
	RING_STEP_ENDED,
};

struct ring_job {
	struct link link;
	enum ring_step (*step)(struct uring *uring, struct ring_job *job);
	struct attachment *attachment;
	struct actmem_file *file;
	unsigned int next;		/* piece or stripe */
	int error;			/* negative */
	char words[ERROR_TEXT_MAX];
	bool ended;
};

struct uring {
	struct io_uring ring;
	pthread_t thread;
	pthread_cond_t ready;		/* the ring is there, or a job has ended */
	struct held held;
	int descriptors[2];		/* ring, eventfd */
	bool listens;			/* to the eventfd */
	bool asleep, ending, started, cancelling;
	bool woken;			/* since deadlines, jobs and cancels were looked at */
	int error;			/* of the start */
	struct link jobs;
	struct link unused, to_send, under_way;	/* blocks */
	unsigned int sent;		/* under way, or in the ring to be begun */
	struct transfer blocks[RING_ENTRIES];
	/* Slots of the tables that are not used; the ring's thread takes and gives. */
	uint16_t buffers[RING_BUFFERS], files[RING_FILES];
	unsigned int buffer_count, file_count;
	char words[ERROR_TEXT_MAX];	/* of the error */
};

/* Both in the ring's thread, whose own it is. 0 or -errno with words. */
int ring_open(struct uring *uring);
void ring_close(struct uring *uring);

/* Has the ring's thread do it, and waits. Returns its error. */
int ring_do(struct actmem_queue *queue, struct ring_job *job);

int ring_attach(struct actmem_queue *queue, struct attachment *attachment);
void ring_detach(struct actmem_queue *queue, struct attachment *attachment);
int ring_add_file(struct actmem_queue *queue, struct actmem_file *file);
void ring_remove_file(struct actmem_queue *queue, struct actmem_file *file);

#endif /* LIB_QUEUE_URING_H */
