/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Creates, describes and destroys queues, and attaches regions to them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "queue/inside.h"
#include "region/region.h"

#define WORKERS_USUAL	8
#define BLOCK_UNIT_BYTES	4096

int queue_refuse(const struct actmem_queue *queue, const char *call)
{
	return queue ? check_owner(queue->am) : fail(EINVAL, "%s: no queue", call);
}

static HOT void tell(struct actmem_queue *queue, unsigned int ended, bool rouse, bool raise)
{
	if (raise)
		queue_raise(queue->event);
	if (ended > 1)
		pthread_cond_broadcast(&queue->completed);
	else if (ended)
		pthread_cond_signal(&queue->completed);
	if (rouse)
		queue->engine->rouse(queue);
}

HOT void queue_unlock(struct actmem_queue *queue)
{
	unsigned int ended = queue->to_tell;
	bool rouse = queue->to_rouse, raise = queue->to_raise;

	queue->to_tell = 0;
	queue->to_rouse = false;
	queue->to_raise = false;
	pthread_mutex_unlock(&queue->lock);
	tell(queue, ended, rouse, raise);
}

HOT void queue_tell(struct actmem_queue *queue)
{
	tell(queue, queue->to_tell, queue->to_rouse, queue->to_raise);
	queue->to_tell = 0;
	queue->to_rouse = false;
	queue->to_raise = false;
}

static int check_options(const struct actmem_queue_options *options)
{
	if (options->engine > ACTMEM_ENGINE_WORKERS)
		return fail(EINVAL, "queue engine %u is unknown", options->engine);
	if (options->block_bytes % BLOCK_UNIT_BYTES ||
	    options->block_bytes > ACTMEM_BLOCK_BYTES_MAX)
		return fail(EINVAL, "%s is %llu, but must be a multiple of %u up to 1 GiB",
			    KNOB(BLOCK), (unsigned long long)options->block_bytes, BLOCK_UNIT_BYTES);
	if (options->depth > ACTMEM_QUEUE_DEPTH_MAX)
		return fail(EINVAL, "depth is %u, but must be at most %u", options->depth,
			    ACTMEM_QUEUE_DEPTH_MAX);
	if (options->workers > ACTMEM_QUEUE_WORKERS_MAX)
		return fail(EINVAL, "workers is %u, but must be at most %u", options->workers,
			    ACTMEM_QUEUE_WORKERS_MAX);
	return options->reserved ? fail(EINVAL, "queue options: reserved is not 0") : 0;
}

static int init_condition(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	int error = pthread_condattr_init(&attributes);

	if (!error) {
		error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
		if (!error)
			error = pthread_cond_init(condition, &attributes);
		pthread_condattr_destroy(&attributes);
	}
	return error ? fail(error, "cannot make a queue's condition (%s)", strerror(error)) : 0;
}

/*
 * Returns true if the error means that this process cannot use io_uring. A queue with
 * ACTMEM_ENGINE_AUTO then uses threads.
 */
static bool is_refused(int error)
{
	return error == -ENOSYS || error == -EPERM || error == -EACCES || error == -ENOMEM;
}

static int start(struct actmem_queue *queue)
{
	enum actmem_engine wanted = queue->options.engine;
	const char *why = wanted ? "as requested" : "the kernel permits it";
	int error;

	if (wanted != ACTMEM_ENGINE_WORKERS) {
		queue->engine = &engine_uring;
		error = queue->engine->start(queue);
		if (!error) {
			snprintf(queue->description, sizeof(queue->description), "io_uring: %s",
				 why);
			snprintf(queue->plain_description, sizeof(queue->plain_description),
				 "io_uring: %s; without registered buffers, because this kernel cannot register memory of the actmem driver (EOPNOTSUPP)",
				 why);
		}
		if (!error || wanted || !is_refused(error))
			return error;
		snprintf(queue->description, sizeof(queue->description), "workers: %s",
			 actmem_error());
	} else {
		snprintf(queue->description, sizeof(queue->description), "workers: as requested");
	}
	queue->engine = &engine_workers;
	return queue->engine->start(queue);
}

static int make(struct actmem_queue *queue)
{
	int error = init_condition(&queue->completed);

	if (error)
		return error;
	error = init_condition(&queue->workers.work);
	if (error)
		goto destroy_completed;
	error = init_condition(&queue->workers.watch);
	if (error)
		goto destroy_work;
	pthread_mutex_init(&queue->lock, NULL);
	error = start(queue);
	if (!error)
		return 0;
	pthread_mutex_destroy(&queue->lock);
	pthread_cond_destroy(&queue->workers.watch);
destroy_work:
	pthread_cond_destroy(&queue->workers.work);
destroy_completed:
	pthread_cond_destroy(&queue->completed);
	return error;
}

int actmem_queue_create(struct actmem *am, const struct actmem_queue_options *options,
			struct actmem_queue **result)
{
	struct actmem_queue *queue;
	int error = 0;

	if (!am || !result)
		return fail(EINVAL, "actmem_queue_create: am or queue is NULL");
	error = check_owner(am);
	if (error)
		return error;
	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return fail(ENOMEM, "no memory for a queue");
	if (options)
		error = take_struct(&queue->options, sizeof(queue->options), options,
				    "queue options");
	if (!error)
		error = check_options(&queue->options);
	if (error)
		goto free_queue;
	queue->am = am;
	queue->event = -1;
	queue->workers.limit = queue->options.workers ? queue->options.workers : WORKERS_USUAL;
	link_init(&queue->files);
	link_init(&queue->attachments);
	link_init(&queue->under_way);
	link_init(&queue->ended);
	link_init(&queue->timed);
	link_init(&queue->unused);
	error = make(queue);
	if (error)
		goto free_queue;
	queue->wait = wait_begin(am->waits, WAIT_NONE, 0, 0, "");
	handles_lock();
	am->queues++;
	handles_unlock();
	fail_clear();
	*result = queue;
	return 0;

free_queue:
	free(queue);
	return error;
}

int actmem_queue_destroy(struct actmem_queue *queue)
{
	struct actmem_queue_stats *stats;
	int error = queue_check(queue, "actmem_queue_destroy");

	if (error)
		return error;
	stats = &queue->stats;
	pthread_mutex_lock(&queue->lock);
	if (stats->requests || stats->completions || queue->file_count || queue->attachment_count)
		error = fail(EBUSY, "the queue has %llu requests in progress, %llu unread completions, %u open files and %u attached regions",
			     (unsigned long long)stats->requests,
			     (unsigned long long)stats->completions, queue->file_count,
			     queue->attachment_count);
	pthread_mutex_unlock(&queue->lock);
	if (error)
		return error;
	thread_hold_cancellation();
	wait_end(queue->am->waits, queue->wait);
	queue->engine->stop(queue);
	if (queue->event >= 0) {
		held_drop(&queue->held);
		close(queue->event);
	}
	queue_free_requests(queue);
	pthread_mutex_destroy(&queue->lock);
	pthread_cond_destroy(&queue->workers.watch);
	pthread_cond_destroy(&queue->workers.work);
	pthread_cond_destroy(&queue->completed);
	handles_lock();
	queue->am->queues--;
	handles_unlock();
	free(queue);
	thread_let_cancellation();
	return 0;
}

const char *actmem_queue_describe(const struct actmem_queue *queue)
{
	if (!queue)
		return "no queue";
	return queue->is_plain ? queue->plain_description : queue->description;
}

int actmem_queue_get_stats(struct actmem_queue *queue, struct actmem_queue_stats *stats)
{
	struct actmem_queue_stats now;
	int error = queue_check(queue, "actmem_queue_get_stats");

	if (error)
		return error;
	if (!stats)
		return fail(EINVAL, "actmem_queue_get_stats: stats is NULL");
	pthread_mutex_lock(&queue->lock);
	now = queue->stats;
	now.files = queue->file_count;
	now.regions = queue->attachment_count;
	now.engine = queue->engine->kind;
	pthread_mutex_unlock(&queue->lock);
	return give_struct(stats, &now, sizeof(now), "queue stats");
}

/* Maps a region and keeps it from being closed. */
static int hold_region(struct actmem_region *region, void **address)
{
	int error = actmem_region_map(region, address);

	if (!error)
		atomic_fetch_add_explicit(&region->attachments, 1, memory_order_relaxed);
	return error;
}

static int let_go_of_region(struct actmem_region *region)
{
	int error = actmem_region_unmap(region);

	/* From now on the region may be closed. */
	atomic_fetch_sub_explicit(&region->attachments, 1, memory_order_release);
	return error;
}

static int make_attachment(struct actmem_queue *queue, struct actmem_region *region,
			   uint32_t flags, struct attachment **result)
{
	uint64_t length = actmem_region_length(region);
	struct attachment *attachment = calloc(1, sizeof(*attachment));
	void *address;
	int error;

	if (!attachment)
		return fail(ENOMEM, "no memory to attach a region");
	error = hold_region(region, &address);
	if (error) {
		free(attachment);
		return error;
	}
	attachment->region = region;
	attachment->address = address;
	attachment->length = length;
	attachment->piece_bytes = PIECE_MOST;
	attachment->plain = flags & ACTMEM_ATTACH_PLAIN;
	link_init(&attachment->link);
	if (!attachment->plain) {
		region_hold_pages(region);
		error = queue->engine->attach(queue, attachment);
		/*
		 * If the engine cannot register this memory, it sets attachment->plain.
		 */
		if (error || attachment->plain)
			region_let_go_of_pages(region);
	}
	if (error) {
		let_go_of_region(region);
		free(attachment);
		return error;
	}
	*result = attachment;
	return 0;
}

static int detach(struct actmem_queue *queue, struct attachment *attachment)
{
	struct actmem_region *region = attachment->region;

	if (!attachment->plain) {
		queue->engine->detach(queue, attachment);
		region_let_go_of_pages(region);
	}
	free(attachment);
	return let_go_of_region(region);
}

/* Checks that a queue can use the region. Registered memory must be writable. */
static int check_attachable(const struct actmem_region *region)
{
	int error = region_check_writable(region);

	if (region->backing.fd < 0)
		return fail(EOPNOTSUPP, "the memory is the runtime's own, which io_uring may not be able to access; only registered regions can be spilled");
	if (error)
		fail_more(", so it cannot be attached to a queue, which writes to its regions");
	return error;
}

static int fail_attached(void)
{
	return fail(EEXIST, "the region is already attached to the queue");
}

bool queue_is_attached(struct actmem_queue *queue, const struct actmem_region *region)
{
	bool is_there;

	pthread_mutex_lock(&queue->lock);
	is_there = queue_attachment(queue, region);
	pthread_mutex_unlock(&queue->lock);
	return is_there;
}

/*
 * Registering a region can take seconds, and can exceed RLIMIT_MEMLOCK. So the call first refuses a
 * region that is already attached. If two threads attach a region at once, the later thread undoes
 * its registration and fails.
 */
int actmem_queue_attach(struct actmem_queue *queue, struct actmem_region *region, uint32_t flags)
{
	struct attachment *attachment = NULL;
	int error = queue_check(queue, "actmem_queue_attach");
	bool is_there;

	if (error)
		return error;
	if (!region || region->am != queue->am)
		return fail(EINVAL, region ? "the region and the queue come from different calls of actmem_open()" :
			    "actmem_queue_attach: no region");
	if (flags & ~ACTMEM_ATTACH_PLAIN)
		return fail(EINVAL, "attach flags 0x%x are unknown", flags & ~ACTMEM_ATTACH_PLAIN);
	error = check_attachable(region);
	if (!error && queue_is_attached(queue, region))
		error = fail_attached();
	if (!error)
		error = make_attachment(queue, region, flags, &attachment);
	if (error)
		return error;
	pthread_mutex_lock(&queue->lock);
	is_there = queue_attachment(queue, region);
	if (!is_there) {
		link_append(&queue->attachments, &attachment->link);
		queue->attachment_count++;
		if (!attachment->plain)
			queue->stats.registered_bytes += attachment->length;
	}
	pthread_mutex_unlock(&queue->lock);
	if (!is_there)
		return 0;
	detach(queue, attachment);
	return fail_attached();
}

int actmem_queue_detach(struct actmem_queue *queue, struct actmem_region *region)
{
	struct attachment *attachment;
	int error = queue_check(queue, "actmem_queue_detach");

	if (error)
		return error;
	pthread_mutex_lock(&queue->lock);
	attachment = queue_attachment(queue, region);
	if (!attachment) {
		error = fail(ENOENT, "the region is not attached to the queue");
	} else if (attachment->requests) {
		error = fail(EBUSY, "%u requests of the region are in progress",
			     attachment->requests);
	} else {
		link_remove(&attachment->link);
		queue->attachment_count--;
		if (!attachment->plain)
			queue->stats.registered_bytes -= attachment->length;
	}
	pthread_mutex_unlock(&queue->lock);
	if (error)
		return error;
	return detach(queue, attachment);
}
