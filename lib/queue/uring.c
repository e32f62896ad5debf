/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The engine that uses io_uring. One thread owns the ring. This thread starts blocks, takes
 * completions, and registers buffers and files. So completions interrupt no thread of the program,
 * and the kernel cancels no I/O when a thread of the program ends.
 *
 * The ring's thread sleeps in the kernel until a completion arrives, a deadline passes, or another
 * thread writes to the ring's eventfd. ring.c creates the ring, register.c registers buffers and
 * files, and notify.c reports completions.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "queue/inside.h"
#include "queue/uring.h"

/* Time before a retry, if the kernel had no memory to start a transfer. */
#define BREATH_US	1000

/*
 * If one call submits more than two transfers, the kernel delays them and merges adjacent transfers
 * into requests of the maximum length that the device accepts. The merging makes short transfers
 * faster. But if long transfers are merged, fewer requests than intended are under way. The kernel
 * does not merge transfers of that maximum length, so one call can submit many of these.
 */
#define BEGUN_AT_ONCE	2
#define LONG_BYTES	(512U << 10)

/*
 * Adds a poll of the eventfd to the ring, unless the kernel already polls it. Called at the start
 * of each iteration of serve(), when the ring has a free entry.
 */
static void listen_for_event(struct uring *uring)
{
	struct io_uring_sqe *sqe = uring->listens ? NULL : io_uring_get_sqe(&uring->ring);

	if (!sqe)
		return;
	uring->listens = true;
	io_uring_prep_poll_multishot(sqe, uring->descriptors[1], POLLIN);
	io_uring_sqe_set_data(sqe, uring);
}

/* Adds a block to the ring. Returns false if the ring is full for now. */
static bool send_transfer(struct uring *uring, struct transfer *block)
{
	const struct request *request = block->request;
	const struct attachment *attachment = request->attachment;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
	char *memory = block->memory + block->done;
	uint64_t offset = block->file_offset + block->done;
	unsigned int length = (unsigned int)(block->length - block->done);
	int file = request->file->stripes[block->stripe].slot;

	if (!sqe)
		return false;
	if (attachment->plain && request->kind == REQUEST_FILL)
		io_uring_prep_read(sqe, file, memory, length, offset);
	else if (attachment->plain)
		io_uring_prep_write(sqe, file, memory, length, offset);
	else if (request->kind == REQUEST_FILL)
		io_uring_prep_read_fixed(sqe, file, memory, length, offset,
					 attachment->slots[block->piece]);
	else
		io_uring_prep_write_fixed(sqe, file, memory, length, offset,
					  attachment->slots[block->piece]);
	/* If a transfer made no progress, let a kernel thread repeat it: that thread can sleep. */
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE | (block->repeats ? IOSQE_ASYNC : 0));
	io_uring_sqe_set_data(sqe, block);
	return true;
}

/*
 * Asks the kernel to cancel the blocks of requests that will fail. Ignores the results of the
 * cancellations: each block completes anyway.
 */
static void send_cancels(struct uring *uring)
{
	struct link *link;

	if (!uring->cancelling)
		return;
	for (link = uring->under_way.next; link != &uring->under_way; link = link->next) {
		struct transfer *block = link_item(link, struct transfer, link);
		struct io_uring_sqe *sqe;

		if (block->cancelled || !queue_is_cancelled(block))
			continue;
		sqe = io_uring_get_sqe(&uring->ring);
		if (!sqe)
			return;
		io_uring_prep_cancel(sqe, block, 0);
		io_uring_sqe_set_data(sqe, NULL);
		block->cancelled = true;
	}
	uring->cancelling = false;
}

static HOT void submit_to_kernel(struct actmem_queue *queue, struct uring *uring)
{
	queue_unlock(queue);
	io_uring_submit(&uring->ring);
	pthread_mutex_lock(&queue->lock);
}

static bool is_of_whole_requests(const struct transfer *block)
{
	const struct actmem_file *file = block->request->file;

	return file->request_bytes && block->length % file->request_bytes == 0;
}

/*
 * Sends the new blocks, and the blocks that must be resumed. If the ring is full, the rest stays in
 * to_send.
 */
static HOT void send_blocks(struct actmem_queue *queue, struct uring *uring)
{
	while (!link_is_alone(&uring->to_send)) {
		struct transfer *block = link_item(uring->to_send.next,
						   struct transfer, link);

		if (queue_is_cancelled(block)) {
			link_remove(&block->link);
			link_prepend(&uring->unused, &block->link);
			queue_give_up_transfer(queue, block);
			continue;
		}
		if (!send_transfer(uring, block))
			return;
		link_remove(&block->link);
		link_append(&uring->under_way, &block->link);
		uring->sent++;
		if (block->length >= LONG_BYTES && !is_of_whole_requests(block) &&
		    io_uring_sq_ready(&uring->ring) >= BEGUN_AT_ONCE)
			submit_to_kernel(queue, uring);
	}
}

static HOT void begin_blocks(struct actmem_queue *queue, struct uring *uring)
{
	struct transfer *block;

	send_cancels(uring);
	send_blocks(queue, uring);
	while (!link_is_alone(&uring->unused) && link_is_alone(&uring->to_send)) {
		block = link_item(uring->unused.next, struct transfer, link);
		link_remove(&block->link);
		if (!queue_begin_transfer(queue, block)) {
			link_prepend(&uring->unused, &block->link);
			return;
		}
		link_append(&uring->to_send, &block->link);
		send_blocks(queue, uring);
	}
}

static HOT void take_back(struct actmem_queue *queue, struct uring *uring,
			  struct transfer *block, int result)
{
	link_remove(&block->link);
	uring->sent--;
	block->cancelled = false;
	if (queue_continue(queue, block, result))
		link_append(&uring->to_send, &block->link);
	else
		link_prepend(&uring->unused, &block->link);
}

static void take_completions(struct actmem_queue *queue, struct uring *uring)
{
	unsigned int head, count = 0;
	struct io_uring_cqe *cqe;

	io_uring_for_each_cqe(&uring->ring, head, cqe) {
		uint64_t data = cqe->user_data;

		count++;
		if (!data)
			continue;
		if (data == (uintptr_t)uring)
			uring->listens = cqe->flags & IORING_CQE_F_MORE;
		else if (data & RING_RELEASE)
			((struct attachment *)(uintptr_t)(data & ~RING_RELEASE))->held--;
		else
			take_back(queue, uring, (struct transfer *)(uintptr_t)data, cqe->res);
	}
	io_uring_cq_advance(&uring->ring, count);
}

/*
 * Does one step of the first job. Releases the lock during the step, because pinning a piece can
 * take milliseconds.
 */
static enum ring_step do_job(struct actmem_queue *queue, struct uring *uring)
{
	enum ring_step step = RING_STEP_WAIT;
	struct ring_job *job;

	if (link_is_alone(&uring->jobs))
		return step;
	job = link_item(uring->jobs.next, struct ring_job, link);
	queue_unlock(queue);
	step = job->step(uring, job);
	pthread_mutex_lock(&queue->lock);
	if (step != RING_STEP_ENDED)
		return step;
	link_remove(&job->link);
	job->ended = true;
	pthread_cond_broadcast(&uring->ready);
	return RING_STEP_AGAIN;
}

/*
 * Starts blocks in place of the completed ones, then calls the notify function. If few other blocks
 * are under way, submits the new blocks before that call, so that the disks work during the call.
 * Otherwise, one later system call submits the new blocks and those that the notify function adds.
 * Blocks that are not submitted here stay in the ring until enter() submits them.
 */
static HOT void notify(struct actmem_queue *queue, struct uring *uring)
{
	if (!queue_is_to_notify(queue))
		return;
	begin_blocks(queue, uring);
	if (io_uring_sq_ready(&uring->ring) >= (uring->sent + 1) / 2)
		submit_to_kernel(queue, uring);
	queue_notify(queue);
}

/* Submits the entries of the ring, and sleeps until there is work. */
static HOT void enter(struct uring *uring, enum ring_step step, uint64_t expiry)
{
	struct __kernel_timespec timeout = { 0 };
	struct io_uring_cqe *cqe;
	uint64_t now = expiry && step == RING_STEP_WAIT ? clock_ns() : 0;
	bool is_short = expiry || step == RING_STEP_AGAIN;
	int error;

	if (now && expiry > now) {
		timeout.tv_sec = (long long)((expiry - now) / NS_PER_SECOND);
		timeout.tv_nsec = (long long)((expiry - now) % NS_PER_SECOND);
	}
	error = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1,
						 is_short ? &timeout : NULL, NULL);
	/*
	 * The kernel had no memory to start a transfer. The transfer stays in the ring, and a later
	 * call submits it.
	 */
	if (error < 0 && error != -ETIME && error != -EINTR)
		usleep(BREATH_US);
}

static HOT void *serve(void *argument)
{
	struct actmem_queue *queue = argument;
	struct uring *uring = queue->uring;
	enum ring_step step;
	uint64_t expiry;

	pthread_mutex_lock(&queue->lock);
	uring->error = ring_open(uring);
	if (uring->error)
		snprintf(uring->words, sizeof(uring->words), "%s", fail_words());
	uring->started = true;
	pthread_cond_broadcast(&uring->ready);
	while (!uring->error && !uring->ending) {
		listen_for_event(uring);
		notify(queue, uring);
		step = do_job(queue, uring);
		uring->woken = false;
		expiry = queue_expire(queue);
		begin_blocks(queue, uring);
		/*
		 * Work may have arrived while the lock was released. This thread was not marked as
		 * asleep at that time, so no thread has written to the eventfd.
		 */
		if (queue_is_to_notify(queue) || uring->woken || uring->ending)
			step = RING_STEP_AGAIN;
		uring->asleep = true;
		queue_unlock(queue);
		enter(uring, step, expiry);
		pthread_mutex_lock(&queue->lock);
		uring->asleep = false;
		take_completions(queue, uring);
	}
	pthread_mutex_unlock(&queue->lock);
	if (!uring->error)
		ring_close(uring);
	return NULL;
}

/* Caller holds the lock. */
static HOT void wake(struct actmem_queue *queue)
{
	if (queue->uring->asleep)
		queue->to_rouse = true;
	queue->uring->asleep = false;
	queue->uring->woken = true;
}

/* Does nothing: the ring's thread makes no long call, so it handles deadlines in time. */
static int listen_to(struct actmem_queue *queue)
{
	return 0;
}

/*
 * Wakes the ring's thread. Each write to the eventfd completes a poll, so no thread needs to read
 * the eventfd.
 */
static void rouse(struct actmem_queue *queue)
{
	queue_raise(queue->uring->descriptors[1]);
}

static void cancel(struct actmem_queue *queue, struct request *request)
{
	queue->uring->cancelling = true;
	wake(queue);
}

static struct uring *new_uring(void)
{
	struct uring *uring = calloc(1, sizeof(*uring));
	unsigned int i;

	if (!uring)
		return NULL;
	link_init(&uring->jobs);
	link_init(&uring->unused);
	link_init(&uring->to_send);
	link_init(&uring->under_way);
	for (i = 0; i < RING_ENTRIES; i++)
		link_append(&uring->unused, &uring->blocks[i].link);
	for (i = 0; i < RING_BUFFERS; i++)
		uring->buffers[uring->buffer_count++] = (uint16_t)(RING_BUFFERS - 1 - i);
	for (i = 0; i < RING_FILES; i++)
		uring->files[uring->file_count++] = (uint16_t)(RING_FILES - 1 - i);
	pthread_cond_init(&uring->ready, NULL);
	return uring;
}

static void free_uring(struct actmem_queue *queue)
{
	pthread_cond_destroy(&queue->uring->ready);
	free(queue->uring);
	queue->uring = NULL;
}

/*
 * Starts the ring's thread. That thread creates the ring, because no other thread may use the ring.
 */
static int start_thread(struct actmem_queue *queue, struct uring *uring)
{
	int error = thread_start(&uring->thread, "actmem-queue", serve, queue);

	if (error)
		return fail(error, "cannot start a thread for the queue (pthread_create: %s)",
			    strerror(error));
	thread_hold_cancellation();
	pthread_mutex_lock(&queue->lock);
	while (!uring->started)
		pthread_cond_wait(&uring->ready, &queue->lock);
	pthread_mutex_unlock(&queue->lock);
	thread_let_cancellation();
	if (!uring->error)
		return 0;
	pthread_join(uring->thread, NULL);
	return fail(-uring->error, "%s", uring->words);
}

static int start(struct actmem_queue *queue)
{
	struct uring *uring = new_uring();
	int error;

	if (!uring)
		return fail(ENOMEM, "no memory for a ring");
	queue->uring = uring;
	uring->descriptors[1] = eventfd(0, EFD_CLOEXEC);
	if (uring->descriptors[1] < 0) {
		error = fail(errno, "cannot make an eventfd (%s)", strerror(errno));
		goto free_ring;
	}
	error = start_thread(queue, uring);
	if (error)
		goto close_event;
	uring->held.descriptors = uring->descriptors;
	uring->held.count = 2;
	held_add(queue->am, &uring->held);
	return 0;

close_event:
	close(uring->descriptors[1]);
free_ring:
	free_uring(queue);
	return error;
}

static void stop(struct actmem_queue *queue)
{
	struct uring *uring = queue->uring;

	held_drop(&uring->held);
	pthread_mutex_lock(&queue->lock);
	uring->ending = true;
	wake(queue);
	queue_unlock(queue);
	pthread_join(uring->thread, NULL);
	close(uring->descriptors[1]);
	free_uring(queue);
}

int ring_do(struct actmem_queue *queue, struct ring_job *job)
{
	struct uring *uring = queue->uring;

	thread_hold_cancellation();
	pthread_mutex_lock(&queue->lock);
	link_append(&uring->jobs, &job->link);
	wake(queue);
	queue_tell(queue);
	while (!job->ended)
		pthread_cond_wait(&uring->ready, &queue->lock);
	pthread_mutex_unlock(&queue->lock);
	thread_let_cancellation();
	return job->error;
}

const struct engine engine_uring = {
	.kind = ACTMEM_ENGINE_URING,
	.start = start,
	.stop = stop,
	.wake = wake,
	.rouse = rouse,
	.listen = listen_to,
	.attend = wake,
	.cancel = cancel,
	.attach = ring_attach,
	.detach = ring_detach,
	.add_file = ring_add_file,
	.remove_file = ring_remove_file,
};
