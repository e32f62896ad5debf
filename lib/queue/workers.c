/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The engine that uses threads. Each thread transfers one block at a time, and sleeps in the system
 * call until the transfer ends. One more thread, the watcher, transfers no blocks. The watcher
 * reports passed deadlines even if all other threads sleep in system calls.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
#include "queue/inside.h"

/* The queue of this thread, if the thread is a worker. */
static __thread const struct actmem_queue *own_queue;

static int64_t transfer_block(const struct transfer *block)
{
	const struct request *request = block->request;
	struct iovec memory = { block->memory + block->done, block->length - block->done };
	int fd = request->file->stripes[block->stripe].fd;
	off_t offset = (off_t)(block->file_offset + block->done);
	ssize_t got = request->kind == REQUEST_FILL ? preadv2(fd, &memory, 1, offset, 0) :
		      pwritev2(fd, &memory, 1, offset, 0);

	return got < 0 ? -errno : got;
}

/* Finishes a block. Caller holds the lock, which is released during the system calls. */
static void finish_block(struct actmem_queue *queue, struct transfer *block)
{
	int64_t result;

	do {
		queue_unlock(queue);
		result = transfer_block(block);
		pthread_mutex_lock(&queue->lock);
	} while (queue_continue(queue, block, result));
}

static void workers_wake(struct actmem_queue *queue);

static void *work(void *argument)
{
	struct actmem_queue *queue = argument;
	struct workers *workers = &queue->workers;
	struct transfer block;

	own_queue = queue;
	pthread_mutex_lock(&queue->lock);
	while (!workers->ending) {
		queue_expire(queue);
		if (queue_is_to_notify(queue)) {
			queue_notify(queue);
			continue;
		}
		if (queue_begin_transfer(queue, &block)) {
			/* Each thread wakes the next one, so that long requests use all threads. */
			if (queue_has_transfer(queue))
				workers_wake(queue);
			finish_block(queue, &block);
			continue;
		}
		queue_tell(queue);
		workers->idle++;
		pthread_cond_wait(&workers->work, &queue->lock);
		workers->idle--;
	}
	queue_unlock(queue);
	return NULL;
}

bool workers_are_to_notify(const struct actmem_queue *queue)
{
	return own_queue == queue;
}

static void *watch(void *argument)
{
	struct actmem_queue *queue = argument;
	struct workers *workers = &queue->workers;
	struct timespec time;
	uint64_t expiry;

	pthread_mutex_lock(&queue->lock);
	while (!workers->ending) {
		expiry = queue_expire(queue);
		if (queue_is_to_notify(queue)) {
			queue_notify(queue);
			continue;
		}
		queue_tell(queue);
		time = clock_time(expiry);
		if (expiry)
			pthread_cond_timedwait(&workers->watch, &queue->lock, &time);
		else
			pthread_cond_wait(&workers->watch, &queue->lock);
	}
	queue_unlock(queue);
	return NULL;
}

/* Starts one more thread, up to the limit. Returns 0 or a positive errno. */
static int add_thread(struct actmem_queue *queue)
{
	struct workers *workers = &queue->workers;
	int error;

	if (workers->count == workers->limit)
		return 0;
	error = thread_start(&workers->threads[workers->count], "actmem-queue", work, queue);
	if (!error)
		workers->count++;
	return error;
}

static int fail_thread(int error)
{
	return fail(error, "cannot start a thread for the queue (pthread_create: %s)",
		    strerror(error));
}

/* Wakes or starts a thread. If no thread can be started, the existing ones do all the work. */
static void workers_wake(struct actmem_queue *queue)
{
	if (queue->workers.idle)
		pthread_cond_signal(&queue->workers.work);
	else
		add_thread(queue);
}

static void workers_stop(struct actmem_queue *queue)
{
	struct workers *workers = &queue->workers;

	pthread_mutex_lock(&queue->lock);
	workers->ending = true;
	pthread_cond_broadcast(&workers->work);
	pthread_cond_signal(&workers->watch);
	pthread_mutex_unlock(&queue->lock);
	while (workers->count)
		pthread_join(workers->threads[--workers->count], NULL);
	if (workers->has_watcher)
		pthread_join(workers->watcher, NULL);
	workers->has_watcher = false;
}

static int workers_start(struct actmem_queue *queue)
{
	int error;

	pthread_mutex_lock(&queue->lock);
	error = add_thread(queue);
	pthread_mutex_unlock(&queue->lock);
	return error ? fail_thread(error) : 0;
}

/* Does nothing: workers_wake() wakes threads as they are needed. */
static void workers_rouse(struct actmem_queue *queue)
{
}

static int workers_listen(struct actmem_queue *queue)
{
	struct workers *workers = &queue->workers;
	int error;

	if (workers->has_watcher)
		return 0;
	error = thread_start(&workers->watcher, "actmem-queue", watch, queue);
	if (error)
		return fail_thread(error);
	workers->has_watcher = true;
	return 0;
}

static void workers_attend(struct actmem_queue *queue)
{
	pthread_cond_signal(&queue->workers.watch);
}

/* Does nothing: the request ends when the system calls for its blocks return. */
static void workers_cancel(struct actmem_queue *queue, struct request *request)
{
}

static int workers_attach(struct actmem_queue *queue, struct attachment *attachment)
{
	attachment->plain = true;
	return 0;
}

static void workers_detach(struct actmem_queue *queue, struct attachment *attachment)
{
}

static int workers_add_file(struct actmem_queue *queue, struct actmem_file *file)
{
	return 0;
}

static void workers_remove_file(struct actmem_queue *queue, struct actmem_file *file)
{
}

const struct engine engine_workers = {
	.kind = ACTMEM_ENGINE_WORKERS,
	.start = workers_start,
	.stop = workers_stop,
	.wake = workers_wake,
	.rouse = workers_rouse,
	.listen = workers_listen,
	.attend = workers_attend,
	.cancel = workers_cancel,
	.attach = workers_attach,
	.detach = workers_detach,
	.add_file = workers_add_file,
	.remove_file = workers_remove_file,
};
