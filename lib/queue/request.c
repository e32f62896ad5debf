/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Checks requests, adds them to the lists of their files, and returns their completions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "queue/inside.h"
#include "region/region.h"

HOT struct attachment *queue_attachment(struct actmem_queue *queue,
					const struct actmem_region *region)
{
	struct link *link;

	for (link = queue->attachments.next; link != &queue->attachments; link = link->next) {
		struct attachment *attachment = link_item(link, struct attachment, link);

		if (attachment->region != region)
			continue;
		/*
		 * Successive requests often use the same region, so the next search checks this
		 * region first.
		 */
		link_remove(link);
		link_prepend(&queue->attachments, link);
		return attachment;
	}
	return NULL;
}

static HOT int check_region(const struct actmem_queue *queue, const struct actmem_region *region,
			    uint64_t offset, uint64_t length)
{
	uint64_t whole;

	if (!region)
		return fail(EINVAL, "no region");
	if (region->am != queue->am)
		return fail(EINVAL, "the region and the queue come from different calls of actmem_open()");
	whole = region->backing.length;
	if (!length || length > whole || offset > whole - length)
		return fail(EINVAL, "%llu bytes at %llu are not a valid range in a region of %llu bytes",
			    (unsigned long long)length, (unsigned long long)offset,
			    (unsigned long long)whole);
	return 0;
}

static HOT int check_file(const struct actmem_queue *queue, const struct request *request)
{
	const struct actmem_file *file = request->file;
	uint64_t offset = request->file_offset, length = request->length;

	if (!file || file->queue != queue)
		return fail(EINVAL, file ? "the file belongs to another queue" : "the file is NULL");
	if (request->kind == REQUEST_SPILL && file->read_only)
		return fail(EBADF, "'%s' is READ_ONLY", file->stripes[0].path);
	if (offset > INT64_MAX || length > INT64_MAX - offset)
		return fail(EINVAL, "%llu bytes at %llu are not a valid range in a file",
			    (unsigned long long)length, (unsigned long long)offset);
	if (offset % file->alignment || length % file->alignment)
		return fail(EINVAL, "%llu bytes at %llu: '%s' needs multiples of %llu bytes",
			    (unsigned long long)length, (unsigned long long)offset,
			    file->stripes[0].path, (unsigned long long)file->alignment);
	if (request->offset % file->memory_alignment)
		return fail(EINVAL, "offset %llu in the region: '%s' needs multiples of %llu bytes",
			    (unsigned long long)request->offset, file->stripes[0].path,
			    (unsigned long long)file->memory_alignment);
	return 0;
}

/*
 * Inserts a request before requests with later deadlines. Searches from the end, because most
 * requests arrive in order of deadline.
 */
static void insert_timed(struct actmem_queue *queue, struct request *request)
{
	struct link *link = queue->timed.previous;

	while (link != &queue->timed &&
	       link_item(link, struct request, timed)->deadline > request->deadline)
		link = link->previous;
	link_insert_before(link->next, &request->timed);
}

static struct request *take_unused(struct actmem_queue *queue)
{
	struct link *link = queue->unused.next;

	if (link == &queue->unused)
		return malloc(sizeof(struct request) + ERROR_TEXT_MAX);
	link_remove(link);
	return link_item(link, struct request, link);
}

void queue_free_requests(struct actmem_queue *queue)
{
	while (!link_is_alone(&queue->unused)) {
		struct link *link = queue->unused.next;

		link_remove(link);
		free(link_item(link, struct request, link));
	}
}

/*
 * Returns true if the request has no deadline, and almost as many blocks are under way as the file
 * permits. One of these blocks completes soon, and the engine then starts a waiting block. So the
 * caller need not wake the engine.
 */
static bool is_served_soon(const struct request *request)
{
	const struct actmem_file *file = request->file;

	return !request->deadline && file->under_way &&
	       file->under_way >= file->depth - file->depth / 8;
}

static HOT void enlist(struct actmem_queue *queue, struct request *request)
{
	request->id = ++queue->next_id;
	link_append(&queue->under_way, &request->link);
	link_append(&request->file->pending, &request->pending);
	if (request->deadline)
		insert_timed(queue, request);
	request->file->requests++;
	request->attachment->requests++;
	queue->stats.requests++;
	queue->stats.requests_total++;
	queue_publish(queue);
	if (!is_served_soon(request))
		queue->engine->wake(queue);
	/*
	 * If the request's deadline is now the earliest, wake the threads in actmem_queue_wait(),
	 * because they must expire the request if all workers hang.
	 */
	if (queue->timed.next == &request->timed)
		queue->to_tell += queue->waiting;
	if (queue->listens && queue->timed.next == &request->timed)
		queue->engine->attend(queue);
}

/*
 * Copies the caller's struct. Most callers use the library's version of the struct: then one
 * assignment suffices.
 */
static int take_request(struct actmem_request *taken, const struct actmem_request *caller)
{
	if (caller->size != sizeof(*taken))
		return take_struct(taken, sizeof(*taken), caller, "request");
	*taken = *caller;
	return 0;
}

static void give_id(struct actmem_request *caller, const struct actmem_request *taken)
{
	if (caller->size == sizeof(*caller))
		caller->id = taken->id;
	else
		give_struct(caller, taken, sizeof(*taken), "request");
}

static HOT int submit_request(struct actmem_queue *queue, const char *call, struct request *draft,
			      struct actmem_region *region, struct actmem_request *caller)
{
	struct actmem_request taken = { 0 };
	struct request *request;
	int error = queue_check(queue, call);

	if (!error && caller)
		error = take_request(&taken, caller);
	if (!error)
		error = check_region(queue, region, draft->offset, draft->length);
	if (!error)
		error = check_file(queue, draft);
	if (error)
		return error;
	draft->cookie = taken.cookie;
	draft->deadline = taken.deadline_ns;
	draft->since = clock_tick_ns();
	link_init(&draft->timed);

	thread_hold_cancellation();
	pthread_mutex_lock(&queue->lock);
	draft->attachment = queue_attachment(queue, region);
	request = draft->attachment ? take_unused(queue) : NULL;
	if (request) {
		*request = *draft;
		link_init(&request->timed);
		enlist(queue, request);
		taken.id = request->id;
	} else if (draft->attachment) {
		error = fail(ENOMEM, "no memory for a request");
	} else {
		error = fail(EINVAL, "the region is not attached to the queue; see actmem_queue_attach()");
	}
	queue_unlock(queue);
	thread_let_cancellation();
	if (!error && caller)
		give_id(caller, &taken);
	return error;
}

HOT int actmem_queue_fill(struct actmem_queue *queue, struct actmem_file *file,
			  uint64_t file_offset, struct actmem_region *region, uint64_t offset,
			  uint64_t length, struct actmem_request *request)
{
	struct request draft = {
		.kind = REQUEST_FILL,
		.file = file,
		.file_offset = file_offset,
		.offset = offset,
		.length = length,
	};

	return submit_request(queue, "actmem_queue_fill", &draft, region, request);
}

HOT int actmem_queue_spill(struct actmem_queue *queue, struct actmem_file *file,
			   uint64_t file_offset, struct actmem_region *region, uint64_t offset,
			   uint64_t length, struct actmem_request *request)
{
	struct request draft = {
		.kind = REQUEST_SPILL,
		.file = file,
		.file_offset = file_offset,
		.offset = offset,
		.length = length,
	};

	return submit_request(queue, "actmem_queue_spill", &draft, region, request);
}

static void describe(const struct request *request, struct actmem_completion *completion)
{
	completion->cookie = request->cookie;
	completion->id = request->id;
	completion->bytes = request->done;
	completion->result = -request->error;
	completion->reserved = 0;
	if (request->error)
		fail(request->error, "%s", request->words);
}

/* Writes a completion to the caller's struct, whose version has @size bytes. */
static void hand_over(const struct request *request, char *caller, size_t size)
{
	struct actmem_completion completion;

	if (size >= sizeof(completion)) {
		describe(request, (struct actmem_completion *)caller);
		if (size > sizeof(completion))
			memset(caller + sizeof(completion), 0, size - sizeof(completion));
		return;
	}
	memset(&completion, 0, sizeof(completion));
	describe(request, &completion);
	memcpy(caller, &completion, size);
}

/* Copies completions of ended requests. Returns their number. Caller holds the lock. */
static HOT int take_ended(struct actmem_queue *queue, char *completions, unsigned int max,
			  size_t size)
{
	unsigned int count;

	for (count = 0; count < max && !link_is_alone(&queue->ended); count++) {
		struct request *request = link_item(queue->ended.next, struct request, link);

		hand_over(request, completions, size);
		completions += size;
		link_remove(&request->link);
		link_prepend(&queue->unused, &request->link);
		queue->stats.completions--;
	}
	/* No requests are left: wake all waiters. */
	if (queue->waiting && !queue->stats.requests && !queue->stats.completions)
		queue->to_tell += queue->waiting;
	return (int)count;
}

/*
 * Waits until any request has ended, or the time @until (0: no limit) has passed. Returns false if
 * @until has passed.
 */
static bool wait_until(struct actmem_queue *queue, uint64_t until)
{
	uint64_t expiry = queue_expire(queue);
	uint64_t next = expiry && (!until || expiry < until) ? expiry : until;
	struct timespec time = clock_time(next);

	if (!link_is_alone(&queue->ended))
		return true;
	queue_tell(queue);
	queue->waiting++;
	if (next)
		pthread_cond_timedwait(&queue->completed, &queue->lock, &time);
	else
		pthread_cond_wait(&queue->completed, &queue->lock);
	queue->waiting--;
	return !until || clock_ns() < until;
}

static HOT int wait_and_take(struct actmem_queue *queue, struct actmem_completion *completions,
			     unsigned int max, uint64_t timeout_ns, size_t size)
{
	bool in_time = timeout_ns;
	uint64_t until = 0;
	int count;

	if (timeout_ns && timeout_ns != ACTMEM_WAIT_FOREVER)
		until = clock_after(timeout_ns);
	fail_clear();
	pthread_mutex_lock(&queue->lock);
	while (in_time && link_is_alone(&queue->ended) && queue->stats.requests)
		in_time = wait_until(queue, until);
	queue_expire(queue);
	count = take_ended(queue, (char *)completions, max, size);
	if (!count && queue->stats.requests)
		count = fail(ETIMEDOUT, "none of %llu requests has completed",
			     (unsigned long long)queue->stats.requests);
	queue_unlock(queue);
	return count;
}

HOT int actmem_queue_wait_sized(struct actmem_queue *queue, struct actmem_completion *completions,
				unsigned int max, uint64_t timeout_ns, size_t size)
{
	int count = queue_check(queue, "actmem_queue_wait");

	if (count)
		return count;
	if (!completions || !max || max > INT32_MAX || !size)
		return fail(EINVAL, "actmem_queue_wait: completions is NULL, or max or size is invalid");
	thread_hold_cancellation();
	count = wait_and_take(queue, completions, max, timeout_ns, size);
	thread_let_cancellation();
	return count;
}
