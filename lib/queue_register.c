/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions and files in the tables of a queue's ring. A buffer is registered with a
 * tag: the kernel posts it as a completion when it has let go of the memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "queue_uring.h"

static int fail_register(int error, uint64_t length)
{
	if (error == ENOMEM || error == EPERM)
		return fail(error, "cannot register %s with io_uring (%s): RLIMIT_MEMLOCK counts it; raise it, or attach the region with ACTMEM_ATTACH_PLAIN",
			    BYTES_TEXT(length), strerror(error));
	return fail(error, "cannot register %s with io_uring (%s)", BYTES_TEXT(length),
		    strerror(error));
}

/* Takes the pieces that were registered out of the table again. */
static void drop_pieces(struct uring *uring, struct attachment *attachment, unsigned int count)
{
	struct iovec none = { 0 };
	__u64 no_tag = 0;

	while (count--) {
		uint16_t slot = attachment->slots[count];

		io_uring_register_buffers_update_tag(&uring->ring, slot, &none, &no_tag, 1);
		uring->buffers[uring->buffer_count++] = slot;
	}
}

static int register_piece(struct uring *uring, struct attachment *attachment, unsigned int piece)
{
	uint64_t at = piece * PIECE_BYTES, rest = attachment->length - at;
	struct iovec memory = {
		.iov_base = attachment->address + at,
		.iov_len = rest < PIECE_BYTES ? rest : PIECE_BYTES,
	};
	__u64 tag = (uintptr_t)attachment | RING_RELEASE;
	uint16_t slot;
	int result;

	if (!uring->buffer_count)
		return fail(EMFILE, "the queue has no room for more registered buffers: %u of 1 GiB at most",
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

static enum ring_step attach_step(struct uring *uring, struct ring_job *job)
{
	if (!job->error && job->next < job->attachment->pieces) {
		job->error = register_piece(uring, job->attachment, job->next);
		if (!job->error) {
			job->next++;
			return RING_STEP_AGAIN;
		}
		memcpy(job->words, actmem_error(), sizeof(job->words));
		drop_pieces(uring, job->attachment, job->next);
	}
	return job->error && job->attachment->held ? RING_STEP_WAIT : RING_STEP_ENDED;
}

static enum ring_step detach_step(struct uring *uring, struct ring_job *job)
{
	drop_pieces(uring, job->attachment, job->next);
	job->next = 0;
	return job->attachment->held ? RING_STEP_WAIT : RING_STEP_ENDED;
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

	attachment->slots = calloc(attachment->pieces, sizeof(*attachment->slots));
	if (!attachment->slots)
		return fail(ENOMEM, "no memory to attach a region");
	error = do_job(queue, &job);
	if (!error)
		return 0;
	free(attachment->slots);
	attachment->slots = NULL;
	if (error != -EOPNOTSUPP)
		return error;
	attachment->plain = true;
	__atomic_store_n(&queue->is_plain, true, __ATOMIC_RELEASE);
	return 0;
}

void ring_detach(struct actmem_queue *queue, struct attachment *attachment)
{
	struct ring_job job = {
		.step = detach_step,
		.attachment = attachment,
		.next = attachment->pieces,
	};

	ring_do(queue, &job);
	free(attachment->slots);
}

static void drop_files(struct uring *uring, struct actmem_file *file, unsigned int count)
{
	int none = -1;

	while (count--) {
		uint16_t slot = file->stripes[count].slot;

		io_uring_register_files_update(&uring->ring, slot, &none, 1);
		uring->files[uring->file_count++] = slot;
	}
}

static enum ring_step add_file_step(struct uring *uring, struct ring_job *job)
{
	struct actmem_file *file = job->file;
	unsigned int i;
	int result = 1;

	for (i = 0; i < file->count && uring->file_count && result == 1; i++) {
		uint16_t slot = uring->files[uring->file_count - 1];

		result = io_uring_register_files_update(&uring->ring, slot, &file->stripes[i].fd, 1);
		if (result != 1)
			break;
		uring->file_count--;
		file->stripes[i].slot = slot;
	}
	if (i == file->count)
		return RING_STEP_ENDED;
	drop_files(uring, file, i);
	job->error = result < 0 ?
		     fail(-result, "cannot register '%s' with io_uring (%s)", file->stripes[i].path,
			  strerror(-result)) :
		     fail(EMFILE, "the queue has no room for %u more files: %u at most",
			  file->count, RING_FILES);
	memcpy(job->words, actmem_error(), sizeof(job->words));
	return RING_STEP_ENDED;
}

static enum ring_step remove_file_step(struct uring *uring, struct ring_job *job)
{
	drop_files(uring, job->file, job->file->count);
	return RING_STEP_ENDED;
}

int ring_add_file(struct actmem_queue *queue, struct actmem_file *file)
{
	struct ring_job job = { .step = add_file_step, .file = file };

	return do_job(queue, &job);
}

void ring_remove_file(struct actmem_queue *queue, struct actmem_file *file)
{
	struct ring_job job = { .step = remove_file_step, .file = file };

	ring_do(queue, &job);
}
