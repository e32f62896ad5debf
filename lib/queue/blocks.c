/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Handles requests from submission to completion: cuts them into blocks, and starts, resumes,
 * fails, cancels and ends them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "queue/inside.h"
#include "watch/watch.h"

/*
 * A transfer fails after this many repeats without progress. A transfer is repeated if the kernel
 * could not start it or interrupted it. The usual causes are a lack of memory for the request, and
 * a task that ended.
 */
#define REPEATS_MAX	1000

/* Error messages show this many bytes at the end of a long path. */
#define PATH_SHOWN	100

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void cut_block(const struct request *request, struct transfer *block)
{
	uint64_t at = request->offset + block->at, piece_bytes = request->attachment->piece_bytes;
	uint64_t room = file_locate(request->file, request->file_offset + block->at,
				    &block->stripe, &block->file_offset);

	block->length = least(least(request->length - block->at, request->file->block_bytes), room);
	if (!request->attachment->plain) {
		block->piece = (unsigned int)(at / piece_bytes);
		block->length = least(block->length, piece_bytes - at % piece_bytes);
	}
	block->memory = request->attachment->address + at;
}

static bool file_has_block(const struct actmem_file *file)
{
	return !link_is_alone(&file->pending) && file->under_way < file->depth;
}

bool queue_has_transfer(const struct actmem_queue *queue)
{
	const struct link *link;

	for (link = queue->files.next; link != &queue->files; link = link->next)
		if (file_has_block(link_item(link, struct actmem_file, link)))
			return true;
	return false;
}

/* Starts the next block of a file. Returns false if no block can start. */
static HOT bool begin_block(struct actmem_file *file, struct transfer *block)
{
	struct request *request;

	if (!file_has_block(file))
		return false;
	request = link_item(file->pending.next, struct request, pending);
	memset(block, 0, sizeof(*block));
	block->request = request;
	block->number = request->blocks;
	block->at = request->begun;
	link_init(&block->link);
	cut_block(request, block);
	request->blocks++;
	request->begun += block->length;
	request->under_way++;
	file->under_way++;
	if (request->begun == request->length)
		link_remove(&request->pending);
	return true;
}

HOT bool queue_begin_transfer(struct actmem_queue *queue, struct transfer *block)
{
	unsigned int left;

	for (left = queue->file_count; left; left--) {
		struct link *link = queue->files.next;

		/* Serve the files in turn, so that a slow disk does not delay other disks. */
		link_remove(link);
		link_append(&queue->files, link);
		if (begin_block(link_item(link, struct actmem_file, link), block))
			return true;
	}
	return false;
}

static size_t append(char words[WAIT_WORDS], size_t at, const char *more)
{
	size_t length = least(strlen(more), WAIT_WORDS - 1 - at);

	memcpy(words + at, more, length);
	return at + length;
}

/*
 * Writes the name of a request's file. Can be called for each request, under the queue's lock, so
 * do not use snprintf(), which is slow.
 */
static void name_file(char words[WAIT_WORDS], const struct actmem_file *file)
{
	size_t length = append(words, 0, file->stripes[0].path);

	if (file->count > 1)
		length = append(words, length, " and others");
	words[length] = '\0';
}

/* Writes as few fields as possible: after a sleep, each write is a cache miss. */
HOT void queue_publish(struct actmem_queue *queue)
{
	const struct request *oldest = link_item(queue->under_way.next, struct request, link);
	uint32_t requests = (uint32_t)queue->stats.requests;
	struct published_wait *wait = queue->wait;

	if (!wait)
		return;
	atomic_store_explicit(&wait->requests, requests, memory_order_relaxed);
	if (requests && queue->published_id == oldest->id)
		return;
	sequence_begin(&wait->sequence);
	wait->kind = WAIT_NONE;
	queue->published_id = 0;
	if (requests) {
		queue->published_id = oldest->id;
		wait->kind = oldest->kind == REQUEST_FILL ? WAIT_READ : WAIT_WRITE;
		wait->since = oldest->since;
		wait->bytes = oldest->length;
		if (oldest->file != queue->published_file)
			name_file(wait->words, oldest->file);
		queue->published_file = oldest->file;
	}
	sequence_end(&wait->sequence);
}

static HOT void complete(struct actmem_queue *queue, struct request *request)
{
	if (request->done == request->length)
		request->error = 0;
	if (request->error)
		queue->stats.failures_total++;
	request->file->requests--;
	request->attachment->requests--;
	link_remove(&request->timed);
	link_remove(&request->link);
	link_append(&queue->ended, &request->link);
	queue->stats.requests--;
	queue->stats.completions++;
	wait_note(queue->am->waits);
	queue_publish(queue);
	if (queue->waiting)
		queue->to_tell++;
	queue_has_ended(queue);
}

/*
 * Keeps a request from starting more blocks. The request completes with @error when none of its
 * blocks is under way.
 */
static void stop(struct actmem_queue *queue, struct request *request, int error)
{
	request->error = error;
	request->failed_block = -1;
	link_remove(&request->pending);
	if (!request->under_way)
		complete(queue, request);
}

static void stop_early(struct actmem_queue *queue, struct request *request, int error)
{
	if (request->error)
		return;
	snprintf(request->words, ERROR_TEXT_MAX, "%s: the transfer of %llu of %llu bytes was started",
		 error == ETIME ? "the deadline passed" : "cancelled",
		 (unsigned long long)request->begun, (unsigned long long)request->length);
	if (request->under_way)
		queue->engine->cancel(queue, request);
	stop(queue, request, error);
}

uint64_t queue_expire_timed(struct actmem_queue *queue)
{
	while (!link_is_alone(&queue->timed)) {
		struct request *request = link_item(queue->timed.next, struct request, timed);

		if (request->deadline > clock_ns())
			return request->deadline;
		link_remove(&request->timed);
		stop_early(queue, request, ETIME);
	}
	return 0;
}

int actmem_queue_cancel(struct actmem_queue *queue, uint64_t id)
{
	struct request *request = NULL;
	struct link *link;
	int error = queue_check(queue, "actmem_queue_cancel");

	if (error)
		return error;
	thread_hold_cancellation();
	pthread_mutex_lock(&queue->lock);
	for (link = queue->under_way.next; link != &queue->under_way; link = link->next) {
		request = link_item(link, struct request, link);
		if (request->id == id)
			break;
	}
	if (link == &queue->under_way)
		error = fail(ENOENT, "request %llu is not in progress", (unsigned long long)id);
	else
		stop_early(queue, request, ECANCELED);
	queue_unlock(queue);
	thread_let_cancellation();
	return error;
}

/* Updates the counts after a block has ended. */
static HOT void update_counts(struct actmem_queue *queue, struct request *request)
{
	request->under_way--;
	request->file->under_way--;
	if (!request->under_way && (request->error || request->done == request->length))
		complete(queue, request);
}

HOT void queue_end_transfer(struct actmem_queue *queue, struct transfer *block)
{
	struct request *request = block->request;

	request->done += block->length;
	if (request->kind == REQUEST_FILL)
		queue->stats.filled_bytes_total += block->length;
	else
		queue->stats.spilled_bytes_total += block->length;
	update_counts(queue, request);
}

/*
 * Blocks start in order and end in any order. The request reports the failed block with the lowest
 * number, so that the same failure always has the same error message.
 */
void queue_fail_transfer(struct actmem_queue *queue, struct transfer *block, int error)
{
	struct request *request = block->request;

	if (!request->error || (int64_t)block->number < request->failed_block) {
		snprintf(request->words, ERROR_TEXT_MAX, "%s", fail_words());
		request->error = -error;
		request->failed_block = (int64_t)block->number;
		link_remove(&request->pending);
	}
	update_counts(queue, request);
}

HOT bool queue_is_cancelled(const struct transfer *block)
{
	const struct request *request = block->request;

	return request->error && (int64_t)block->number > request->failed_block;
}

void queue_give_up_transfer(struct actmem_queue *queue, struct transfer *block)
{
	update_counts(queue, block->request);
}

static const char *advice(int error)
{
	switch (error) {
	case ENOSPC:
	case EDQUOT:
		return "; free space there, or use another file system";
	case EFAULT:
		return "; pages of the region are missing and cannot be allocated";
	case EINVAL:
		return "; its file system may need a larger alignment than it reports";
	default:
		return "";
	}
}

/* Sets an error message with file, offset and block. Returns -@error. */
static int fail_block(const struct transfer *block, int error, const char *what)
{
	const struct request *request = block->request;
	const char *path = request->file->stripes[block->stripe].path;
	size_t length = strlen(path);
	bool is_long = length > PATH_SHOWN;

	return fail(error, "%s: block %llu, %llu bytes at %llu of '%s%s': %s%s",
		    request->kind == REQUEST_FILL ? "fill" : "spill",
		    (unsigned long long)block->number,
		    (unsigned long long)(block->length - block->done),
		    (unsigned long long)(block->file_offset + block->done),
		    is_long ? "..." : "", is_long ? path + length - PATH_SHOWN : path,
		    what, advice(error));
}

/* Adds the bytes that were transferred. Returns true if the block is complete. */
static bool advance(struct transfer *block, uint64_t bytes)
{
	uint64_t left = block->length - block->done;

	/* Direct I/O can continue only at a multiple of the alignment. */
	if (bytes < left)
		bytes -= bytes % block->request->file->alignment;
	block->done += bytes < left ? bytes : left;
	if (bytes)
		block->repeats = 0;
	return block->done == block->length;
}

/*
 * Returns an error if the block cannot continue. @moved: the last system call made progress. The
 * kernel can interrupt a transfer without a failure, for example for live patching or because a
 * task ended.
 */
static int check_progress(struct transfer *block, int64_t result, bool moved)
{
	bool is_passing = result == -EINTR || result == -ECANCELED || result == -EAGAIN;

	if (moved || (is_passing && block->repeats++ < REPEATS_MAX))
		return 0;
	if (result < 0)
		return fail_block(block, (int)-result, strerror((int)-result));
	if (block->request->kind == REQUEST_FILL)
		return fail_block(block, ENODATA, "the file ends before the end of the block");
	return fail_block(block, EIO, "the kernel wrote nothing and reported no error");
}

HOT bool queue_continue(struct actmem_queue *queue, struct transfer *block, int64_t result)
{
	uint64_t before = block->done;
	bool is_cancelled;
	int error;

	if (result > 0 && advance(block, (uint64_t)result)) {
		queue_end_transfer(queue, block);
		return false;
	}
	error = check_progress(block, result, block->done > before);
	is_cancelled = !error && queue_is_cancelled(block);
	if (error)
		queue_fail_transfer(queue, block, error);
	else if (is_cancelled)
		queue_give_up_transfer(queue, block);
	else
		queue->stats.resumed_total++;
	return !error && !is_cancelled;
}
