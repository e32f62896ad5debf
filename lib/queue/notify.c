/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program that takes its completions where they come up: in a thread of the queue.
 *
 * The kernel completes what a thread has begun in that thread, so the queue's is awake
 * in any case when something ends. To wake another that takes it costs as much again.
 */
#include <errno.h>

#include "base/base.h"
#include "queue/inside.h"

HOT bool queue_is_notifying(const struct actmem_queue *queue)
{
	return queue->notifying && pthread_equal(queue->notifier, pthread_self());
}

int queue_check_outside(struct actmem_queue *queue, const char *call)
{
	int error = queue_check(queue, call);
	bool is_inside;

	if (error)
		return error;
	pthread_mutex_lock(&queue->lock);
	is_inside = queue_is_notifying(queue);
	pthread_mutex_unlock(&queue->lock);
	return is_inside ? fail(EDEADLK, "%s waits for the queue, and is called by a function given to actmem_queue_notify(), for which the queue waits",
				call) : 0;
}

HOT void queue_has_ended(struct actmem_queue *queue)
{
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
	queue->notifier = pthread_self();
	queue_unlock(queue);
	queue->notify(queue->notify_data);
	pthread_mutex_lock(&queue->lock);
	queue->notifying = false;
}

int actmem_queue_notify(struct actmem_queue *queue, void (*notify)(void *data), void *data)
{
	int error = queue_check(queue, "actmem_queue_notify");

	if (error)
		return error;
	pthread_mutex_lock(&queue->lock);
	if (queue->stats.requests || queue->stats.completions || queue->notifying) {
		error = fail(EBUSY, "the queue has %llu requests under way and %llu completions to be taken%s: who is notified of them stays the same",
			     (unsigned long long)queue->stats.requests,
			     (unsigned long long)queue->stats.completions,
			     queue->notifying ? ", and is notifying" : "");
	} else if (notify) {
		error = queue->engine->listen(queue);
	}
	if (!error) {
		queue->notify = notify;
		queue->notify_data = data;
		queue->to_notify = false;
	}
	pthread_mutex_unlock(&queue->lock);
	return error;
}
