/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Registers regions and files in the tables of a queue's ring. A region is registered in pieces,
 * and each piece is one buffer of the ring. Each buffer has a tag. When the kernel has released the
 * buffer's memory, it posts a completion with the tag.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/machine.h"
#include "queue/uring.h"
#include "region/region.h"

/*
 * Lengths of pieces. The kernel pins a piece of small pages in less than a millisecond, and a piece
 * of huge pages in some milliseconds. A block that crosses the boundary of two pieces needs two
 * transfers, so pieces of huge pages are longer: long blocks then rarely cross a boundary.
 */
#define PIECE_OF_SMALL	(16ULL << 20)
#define PIECE_OF_HUGE	(512ULL << 20)
/*
 * RING_BUFFERS_KEPT slots are kept for pieces of PIECE_MOST. One region may use up to 1/RING_SHARE
 * of the other free slots for shorter pieces.
 */
#define RING_BUFFERS_KEPT	(RING_BUFFERS / 2)
#define RING_SHARE	16

static int fail_register(int error, uint64_t length)
{
	if (error == ENOMEM || error == EPERM)
		return fail(error, "cannot register %s with io_uring (%s): this memory counts against RLIMIT_MEMLOCK; raise that limit, or attach the region with ACTMEM_ATTACH_PLAIN",
			    BYTES_TEXT(length), strerror(error));
	return fail(error, "cannot register %s with io_uring (%s)", BYTES_TEXT(length),
		    strerror(error));
}

/*
 * Returns the length of a region's pieces. While the kernel pins a piece, the ring's thread starts
 * and completes no transfers. Pinning takes longer if a piece has more pages, so pieces of small
 * pages are short. If there are too few slots for short pieces, the pieces are longer.
 */
static uint64_t piece_length(const struct uring *uring, const struct attachment *attachment)
{
	unsigned int free = uring->buffer_count;
	uint64_t most = free > RING_BUFFERS_KEPT ? (free - RING_BUFFERS_KEPT) / RING_SHARE : 0;
	bool is_huge = attachment->region->backing.page_bytes >= HUGE_PAGE_BYTES;
	uint64_t bytes = is_huge ? PIECE_OF_HUGE : PIECE_OF_SMALL;

	while (bytes < PIECE_MOST && attachment->length > most * bytes)
		bytes *= 2;
	return bytes;
}

/*
 * Removes piece *@count - 1 from the ring's table of buffers, and decrements *@count. If the kernel
 * has no memory for the removal, *@count does not change, and the caller tries again.
 */
static void drop_piece(struct uring *uring, struct attachment *attachment, unsigned int *count)
{
	uint16_t slot = attachment->slots[*count - 1];
	struct iovec none = { 0 };
	__u64 no_tag = 0;

	if (io_uring_register_buffers_update_tag(&uring->ring, slot, &none, &no_tag, 1) != 1)
		return;
	uring->buffers[uring->buffer_count++] = slot;
	--*count;
}

static int register_piece(struct uring *uring, struct attachment *attachment, unsigned int piece)
{
	uint64_t at = piece * attachment->piece_bytes, rest = attachment->length - at;
	struct iovec memory = {
		.iov_base = attachment->address + at,
		.iov_len = rest < attachment->piece_bytes ? rest : attachment->piece_bytes,
	};
	__u64 tag = (uintptr_t)attachment | RING_RELEASE;
	uint16_t slot;
	int result;

	if (!uring->buffer_count)
		return fail(EMFILE, "the queue cannot register more buffers: its maximum is %u buffers of 1 GiB",
			    RING_BUFFERS);
	slot = uring->buffers[uring->buffer_count - 1];
	result = io_uring_register_buffers_update_tag(&uring->ring, slot, &memory, &tag, 1);
	if (result < 0)
		return fail_register(-result, memory.iov_len);
	uring->buffer_count--;
	attachment->slots[piece] = slot;
	attachment->held++;
	return 0;
}

/* Removes one piece in each step, then waits until the kernel has released all pieces. */
static enum ring_step drop_step(struct uring *uring, struct ring_job *job)
{
	if (job->next) {
		drop_piece(uring, job->attachment, &job->next);
		return RING_STEP_AGAIN;
	}
	return job->attachment->held ? RING_STEP_WAIT : RING_STEP_ENDED;
}

/*
 * Cuts a region into pieces. Runs in the ring's thread, because only that thread may read how many
 * slots are free.
 */
static int cut_pieces(struct uring *uring, struct attachment *attachment)
{
	uint64_t bytes = piece_length(uring, attachment);

	attachment->piece_bytes = bytes;
	attachment->pieces = (unsigned int)((attachment->length + bytes - 1) / bytes);
	attachment->slots = calloc(attachment->pieces, sizeof(*attachment->slots));
	return attachment->slots ? 0 : fail(ENOMEM, "no memory to attach a region");
}

static enum ring_step attach_step(struct uring *uring, struct ring_job *job)
{
	if (!job->attachment->slots) {
		job->error = cut_pieces(uring, job->attachment);
		if (!job->error)
			return RING_STEP_AGAIN;
		snprintf(job->words, sizeof(job->words), "%s", fail_words());
		return RING_STEP_ENDED;
	}
	if (job->next == job->attachment->pieces)
		return RING_STEP_ENDED;
	job->error = register_piece(uring, job->attachment, job->next);
	if (!job->error) {
		job->next++;
		return RING_STEP_AGAIN;
	}
	snprintf(job->words, sizeof(job->words), "%s", fail_words());
	job->step = drop_step;
	return RING_STEP_AGAIN;
}

static int do_job(struct actmem_queue *queue, struct ring_job *job)
{
	int error = ring_do(queue, job);

	return error ? fail(-error, "%s", job->words) : 0;
}

int ring_attach(struct actmem_queue *queue, struct attachment *attachment)
{
	struct ring_job job = { .step = attach_step, .attachment = attachment };
	int error;

	error = do_job(queue, &job);
	if (!error)
		return 0;
	free(attachment->slots);
	attachment->slots = NULL;
	if (error != -EOPNOTSUPP)
		return error;
	attachment->plain = true;
	queue->is_plain = true;
	return 0;
}

void ring_detach(struct actmem_queue *queue, struct attachment *attachment)
{
	struct ring_job job = {
		.step = drop_step,
		.attachment = attachment,
		.next = attachment->pieces,
	};

	ring_do(queue, &job);
	free(attachment->slots);
}

/* Removes the files with indexes below job->next. If the kernel refuses, the next step retries. */
static enum ring_step drop_file_step(struct uring *uring, struct ring_job *job)
{
	int none = -1;

	while (job->next) {
		uint16_t slot = job->file->stripes[job->next - 1].slot;

		if (io_uring_register_files_update(&uring->ring, slot, &none, 1) != 1)
			return RING_STEP_AGAIN;
		uring->files[uring->file_count++] = slot;
		job->next--;
	}
	return RING_STEP_ENDED;
}

static int register_file(struct uring *uring, struct stripe *stripe)
{
	int result;

	if (!uring->file_count)
		return fail(EMFILE, "the queue cannot open '%s': its maximum is %u files", stripe->path,
			    RING_FILES);
	stripe->slot = uring->files[uring->file_count - 1];
	result = io_uring_register_files_update(&uring->ring, stripe->slot, &stripe->fd, 1);
	if (result != 1)
		return fail(-result, "cannot register '%s' with io_uring (%s)", stripe->path,
			    strerror(-result));
	uring->file_count--;
	return 0;
}

static enum ring_step add_file_step(struct uring *uring, struct ring_job *job)
{
	struct actmem_file *file = job->file;

	for (; job->next < file->count; job->next++) {
		job->error = register_file(uring, &file->stripes[job->next]);
		if (job->error)
			break;
	}
	if (!job->error)
		return RING_STEP_ENDED;
	snprintf(job->words, sizeof(job->words), "%s", fail_words());
	job->step = drop_file_step;
	return RING_STEP_AGAIN;
}

int ring_add_file(struct actmem_queue *queue, struct actmem_file *file)
{
	struct ring_job job = { .step = add_file_step, .file = file };

	return do_job(queue, &job);
}

void ring_remove_file(struct actmem_queue *queue, struct actmem_file *file)
{
	struct ring_job job = { .step = drop_file_step, .file = file, .next = file->count };

	ring_do(queue, &job);
}
