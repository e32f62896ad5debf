/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reports completions to callers that do not wait in actmem_queue_wait(). For the store, a thread
 * of the queue calls a function. For a program, an eventfd becomes readable.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "queue/inside.h"

/* The counter of an eventfd never gets full, so write() does not block. */
void queue_raise(int event)
{
	const uint64_t one = 1;

	while (write(event, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

HOT void queue_has_ended(struct actmem_queue *queue)
{
	if (queue->event >= 0)
		queue->to_raise = true;
	if (!queue->notify || queue->to_notify)
		return;
	queue->to_notify = true;
	if (!workers_are_to_notify(queue))
		queue->engine->attend(queue);
}

HOT bool queue_is_to_notify(const struct actmem_queue *queue)
{
	return queue->to_notify && !queue->notifying;
}

HOT void queue_notify(struct actmem_queue *queue)
{
	queue->to_notify = false;
	queue->notifying = true;
	queue_unlock(queue);
	queue->notify(queue->notify_data);
	pthread_mutex_lock(&queue->lock);
	queue->notifying = false;
}

/* Caller holds the lock. */
static int listen_to(struct actmem_queue *queue)
{
	int error = queue->listens ? 0 : queue->engine->listen(queue);

	queue->listens = !error;
	return error;
}

int queue_notify_by(struct actmem_queue *queue, void (*notify)(void *data), void *data)
{
	int error;

	pthread_mutex_lock(&queue->lock);
	error = listen_to(queue);
	if (!error) {
		queue->notify_data = data;
		queue->notify = notify;
	}
	pthread_mutex_unlock(&queue->lock);
	return error;
}

/*
 * Creates the eventfd, which is readable at once if there are completions. Caller holds the lock.
 */
static int make_event(struct actmem_queue *queue)
{
	int error = listen_to(queue), event;

	if (error)
		return error;
	event = eventfd(!!queue->stats.completions, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event < 0)
		return fail(errno, "cannot make an eventfd (%s)", strerror(errno));
	queue->event = event;
	queue->held.descriptors = &queue->event;
	queue->held.count = 1;
	held_add(queue->am, &queue->held);
	return 0;
}

int actmem_queue_eventfd(struct actmem_queue *queue)
{
	int result = queue_check(queue, "actmem_queue_eventfd");

	if (result)
		return result;
	pthread_mutex_lock(&queue->lock);
	if (queue->event < 0)
		result = make_event(queue);
	if (!result)
		result = queue->event;
	pthread_mutex_unlock(&queue->lock);
	return result;
}
