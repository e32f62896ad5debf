/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* A queue's ring, and the jobs that the ring's thread does for other threads. */
#ifndef LIB_QUEUE_URING_H
#define LIB_QUEUE_URING_H

#include <liburing.h>

#include "base/base.h"
#include "queue/inside.h"

#define RING_ENTRIES	ACTMEM_QUEUE_DEPTH_MAX
#define RING_BUFFERS	4096
#define RING_FILES	256

/*
 * The user_data of a completion identifies the event:
 * - 0: no event; the completion is ignored
 * - the address of the struct uring: the eventfd is readable
 * - the address of a block: its transfer has ended
 * - the address of an attachment plus this bit: the kernel has released one of its buffers
 */
#define RING_RELEASE	1ULL

enum ring_step {
	RING_STEP_AGAIN,
	RING_STEP_WAIT,			/* the job waits for a completion */
	RING_STEP_ENDED,
};

struct ring_job {
	struct link link;
	enum ring_step (*step)(struct uring *uring, struct ring_job *job);
	struct attachment *attachment;
	struct actmem_file *file;
	unsigned int next;		/* registered pieces of @attachment or stripes of @file */
	int error;			/* negative errno, or 0 */
	char words[ERROR_TEXT_MAX];
	bool ended;
};

struct uring {
	struct io_uring ring;
	pthread_t thread;
	pthread_cond_t ready;		/* the ring's thread has started, or a job has ended */
	struct held held;
	int descriptors[2];		/* ring, eventfd */
	bool listens;			/* the kernel polls the eventfd for the ring */
	bool asleep, ending, started, cancelling;
	bool woken;			/* wake() was called after the last check for work */
	int error;			/* error of starting the ring; 0: none */
	struct link jobs;
	struct link unused, to_send, under_way;	/* blocks */
	unsigned int sent;		/* blocks in the ring that have not completed */
	struct transfer blocks[RING_ENTRIES];
	/* Free slots of the ring's tables. Only the ring's thread uses these fields. */
	uint16_t buffers[RING_BUFFERS], files[RING_FILES];
	unsigned int buffer_count, file_count;
	char words[ERROR_TEXT_MAX];	/* error message of @error */
};

/*
 * ring_open() creates the ring, and ring_close() closes it. Only the ring's thread calls these
 * functions. ring_open() returns 0, or a negative errno with an error message.
 */
int ring_open(struct uring *uring);
void ring_close(struct uring *uring);

/* Makes the ring's thread do the job, and waits for it. Returns the job's error. */
int ring_do(struct actmem_queue *queue, struct ring_job *job);

int ring_attach(struct actmem_queue *queue, struct attachment *attachment);
void ring_detach(struct actmem_queue *queue, struct attachment *attachment);
int ring_add_file(struct actmem_queue *queue, struct actmem_file *file);
void ring_remove_file(struct actmem_queue *queue, struct actmem_file *file);

#endif /* LIB_QUEUE_URING_H */
