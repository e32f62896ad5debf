/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Enqueues copies in a lane's CUDA streams: copies of tokens, of values that a program puts, and of
 * blocks that it takes. See stream.h. A thread holds the lane's lock while it enqueues the work of
 * one block, so that the events of slots are recorded in the order in which the slots are used.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "xla/device_wait.h"
#include "xla/memory.h"
#include "xla/stream.h"

bool lane_has_context(const struct lane *lane)
{
	unsigned long long id;

	return !cuda.cuCtxGetId(lane->context, &id) && id == lane->context_id;
}

struct mark *lane_mark(struct lane *lane)
{
	struct mark *mark = lane->free_marks;

	if (mark) {
		lane->free_marks = mark->next;
		return mark;
	}
	mark = malloc(sizeof(*mark));
	if (mark && cuda.cuEventCreate(&mark->event, CUDA_EVENT_DISABLE_TIMING |
				       CUDA_EVENT_BLOCKING_SYNC)) {
		free(mark);
		return NULL;
	}
	return mark;
}

void lane_unmark(struct lane *lane, struct mark *mark)
{
	mark->next = lane->free_marks;
	lane->free_marks = mark;
}

int lane_finish(struct lane *lane, struct mark *mark, const struct saved *block,
		struct finish what)
{
	struct finish *finish = malloc(sizeof(*finish));

	if (!finish)
		return -ENOMEM;
	*finish = what;
	finish->mark = mark;
	finish->token = block->token;
	finish->bytes = block->bytes;
	*lane->last_finish = finish;
	lane->last_finish = &finish->next;
	__atomic_add_fetch(&lane->unfinished, 1, __ATOMIC_RELAXED);
	pthread_cond_signal(&lane->finishes_come);
	return 0;
}

void lane_wait_for_stream(const struct lane *lane, cuda_stream stream)
{
	struct device_wait wait;

	device_wait_begin(&wait, lane->device, 0, "a stream", NULL);
	cuda.cuStreamSynchronize(stream);
	device_wait_end(&wait);
}

static bool is_admitted(const struct lane *lane, uint64_t bytes)
{
	return !lane->put_bytes_most || !lane->put_bytes ||
	       lane->put_bytes + bytes <= lane->put_bytes_most;
}

void lane_admit(struct lane *lane, uint64_t bytes)
{
	struct device_wait wait;

	pthread_mutex_lock(&lane->lock);
	if (!is_admitted(lane, bytes)) {
		TRANSFER_COUNT(lane->device, host_waits_total, 1);
		device_wait_begin(&wait, lane->device, bytes, "copies to the host, before another copy",
				  NULL);
		while (!is_admitted(lane, bytes))
			pthread_cond_wait(&lane->is_finished, &lane->lock);
		device_wait_end(&wait);
	}
	lane->put_bytes += bytes;
	pthread_mutex_unlock(&lane->lock);
}

void lane_put_ended(struct lane *lane, uint64_t bytes)
{
	pthread_mutex_lock(&lane->lock);
	lane->put_bytes -= bytes;
	pthread_cond_broadcast(&lane->is_finished);
	pthread_mutex_unlock(&lane->lock);
}

/* The device writes the token itself, without a copy from the host. */
int lane_write_token(struct lane *lane, cuda_stream stream, cuda_pointer to, uint64_t id,
		     char *words)
{
	cuda_result result = CUDA_OK;

	CUDA_TRY(&result, cuMemsetD32Async(to, (uint32_t)id, 1, stream));
	CUDA_TRY(&result, cuMemsetD32Async(to + 4, (uint32_t)(id >> 32), 1, stream));
	CUDA_TRY(&result, cuMemsetD32Async(to + 8, 0, 2, stream));
	return result ? cuda_failed(result, "write a token", lane->device, words, SAVED_WORDS) : 0;
}

int lane_copy_tokens(struct lane *lane, cuda_stream stream, cuda_pointer to, cuda_pointer from,
		     uint64_t count, char *words)
{
	cuda_result result = CUDA_OK;

	if (count)
		result = cuda.cuMemcpyDtoDAsync_v2(to, from, count * sizeof(struct token), stream);

	return result ? cuda_failed(result, "copy tokens", lane->device, words, SAVED_WORDS) : 0;
}

int lane_clear(struct lane *lane, cuda_stream stream, cuda_pointer to, uint64_t bytes,
	       char *words)
{
	cuda_result result = CUDA_OK;

	if (bytes)
		result = cuda.cuMemsetD32Async(to, 0, (bytes + 3) / 4, stream);
	return result ? cuda_failed(result, "clear a value", lane->device, words, SAVED_WORDS) : 0;
}

static struct mailbox *get_mailbox(struct lane *lane)
{
	struct mailbox *mailbox;

	pthread_mutex_lock(&lane->lock);
	while (!lane->free_mailboxes)
		pthread_cond_wait(&lane->mailboxes_come, &lane->lock);
	mailbox = lane->free_mailboxes;
	lane->free_mailboxes = mailbox->next;
	pthread_mutex_unlock(&lane->lock);
	return mailbox;
}

static void put_mailbox(struct lane *lane, struct mailbox *mailbox)
{
	pthread_mutex_lock(&lane->lock);
	mailbox->next = lane->free_mailboxes;
	lane->free_mailboxes = mailbox;
	pthread_cond_signal(&lane->mailboxes_come);
	pthread_mutex_unlock(&lane->lock);
}

int lane_read_tokens(struct lane *lane, cuda_stream stream, const cuda_pointer *from,
		     unsigned int count, struct token *tokens, char *words)
{
	uint64_t before = clock_ns();
	cuda_result result = CUDA_OK;
	struct mailbox *mailbox;
	struct device_wait wait;
	unsigned int i, n;

	device_wait_begin(&wait, lane->device, 0, "tokens of values", NULL);
	mailbox = get_mailbox(lane);
	for (i = 0; i < count; i += n) {
		n = 1;
		while (i + n < count && from[i + n] == from[i] + n * sizeof(*tokens))
			n++;
		CUDA_TRY(&result, cuMemcpyDtoHAsync_v2(&mailbox->tokens[i], from[i],
						       n * sizeof(*tokens), stream));
	}
	CUDA_TRY(&result, cuEventRecord(mailbox->event, stream));
	CUDA_TRY(&result, cuEventSynchronize(mailbox->event));
	/* After a failure, make sure that no copy writes to the mailbox any more. */
	if (result)
		cuda.cuStreamSynchronize(stream);
	device_wait_end(&wait);
	memcpy(tokens, mailbox->tokens, count * sizeof(*tokens));
	put_mailbox(lane, mailbox);
	TRANSFER_COUNT(lane->device, host_waits_total, 1);
	TRANSFER_COUNT(lane->device, token_waits_total, 1);
	TRANSFER_COUNT(lane->device, token_wait_ns_total, clock_ns() - before);
	return result ? cuda_failed(result, "read a token", lane->device, words, SAVED_WORDS) : 0;
}

bool lane_may_run_ahead(const struct lane *lane, bool is_staged)
{
	return is_staged || !lane->put_bytes_most;
}

unsigned int lane_slots_for(const struct lane *lane, uint64_t bytes)
{
	return (unsigned int)((bytes + lane->slot_bytes - 1) / lane->slot_bytes);
}

cuda_pointer lane_slot_memory(const struct lane *lane, unsigned int slot)
{
	return lane->ring + slot * lane->slot_bytes;
}

/*
 * Returns the first of the next @count slots for values that are being put. The slots form a ring,
 * but a span never wraps around from the last slot to the first.
 */
static unsigned int next_span(struct lane *lane, unsigned int count)
{
	unsigned int first = lane->next_put;

	if (first + count > PUT_SLOTS)
		first = 0;
	lane->next_put = first + count;
	return first;
}

/*
 * Returns the event after which all slots from @slot to the one before @behind are empty. The
 * stream `out` empties spans in order, so the function returns the event of the latest span.
 */
static cuda_event emptied_last(const struct slot *slot, const struct slot *behind)
{
	const struct slot *last = slot;

	while (++slot < behind)
		if (slot->put_number > last->put_number)
			last = slot;
	return last->emptied;
}

/*
 * Copies on XLA's stream into a span, and then on the stream `out` from the span to host memory. If
 * a copy fails, the next user of these slots still waits for the copies that have begun.
 */
static cuda_result put_span(struct lane *lane, cuda_stream stream, cuda_pointer from, void *to,
			   uint64_t bytes)
{
	unsigned int count = lane_slots_for(lane, bytes), first = next_span(lane, count);
	struct slot *slot = &lane->slots[first], *last = slot + count - 1;
	cuda_pointer memory = lane_slot_memory(lane, first);
	cuda_result result = CUDA_OK, copied;

	CUDA_TRY(&result, cuStreamWaitEvent(stream, emptied_last(slot, last + 1), 0));
	if (result)
		return result;
	copied = cuda.cuMemcpyDtoDAsync_v2(memory, from, bytes, stream);
	CUDA_TRY(&result, cuEventRecord(last->filled, stream));
	CUDA_TRY(&result, cuStreamWaitEvent(lane->out, last->filled, 0));
	if (!result)
		CUDA_TRY(&copied, cuMemcpyDtoHAsync_v2(to, memory, bytes, lane->out));
	CUDA_TRY(&result, cuEventRecord(last->empty, lane->out));
	if (result)
		return result;
	lane->put_count++;
	for (; slot <= last; slot++) {
		slot->emptied = last->empty;
		slot->put_number = lane->put_count;
	}
	return copied;
}

/* Copies a value through as few spans as possible. The spans have about equal lengths. */
static cuda_result put_spans(struct lane *lane, cuda_stream stream, cuda_pointer value,
			    const struct saved *block)
{
	unsigned int slots = lane_slots_for(lane, block->bytes);
	unsigned int spans = (slots + PUT_SPAN_MAX - 1) / PUT_SPAN_MAX;
	const uint64_t most = (slots + spans - 1) / spans * lane->slot_bytes;
	cuda_result result = CUDA_OK;
	uint64_t offset, bytes;

	for (offset = 0; offset < block->bytes && !result; offset += bytes) {
		bytes = block->bytes - offset < most ? block->bytes - offset : most;
		result = put_span(lane, stream, value + offset, (char *)block->fill + offset, bytes);
	}
	return result;
}

int lane_put(struct lane *lane, cuda_stream stream, cuda_pointer value, struct saved *block,
	     char *words)
{
	uint64_t bytes = block->bytes;
	cuda_result result = CUDA_OK;
	struct mark *mark;

	if (!bytes) {
		lane_put_ended(lane, bytes);
		saved_filled(block);
		return 0;
	}
	pthread_mutex_lock(&lane->lock);
	mark = lane_mark(lane);
	if (mark)
		result = put_spans(lane, stream, value, block);
	if (mark)
		CUDA_TRY(&result, cuEventRecord(mark->event, lane->out));
	if (mark && !result && !lane_finish(lane, mark, block, (struct finish){ .put = block })) {
		pthread_mutex_unlock(&lane->lock);
		TRANSFER_COUNT(lane->device, to_host_bytes_total, bytes);
		return 0;
	}
	if (mark)
		lane_unmark(lane, mark);
	pthread_mutex_unlock(&lane->lock);
	/* Wait, because copies that have begun may still write to the block. */
	lane_wait_for_stream(lane, lane->out);
	saved_undo(block);
	lane_put_ended(lane, bytes);
	return cuda_failed(result ? result : CUDA_OUT_OF_MEMORY, "copy a value to the host",
			   lane->device, words, SAVED_WORDS);
}

void lane_unstage(struct lane *lane, struct staged *staged)
{
	lane->free_slots |= ((UINT32_C(1) << staged->count) - 1) << (staged->first - PUT_SLOTS);
	__atomic_sub_fetch(&lane->staged_bytes, staged->bytes, __ATOMIC_RELAXED);
	lane_unmark(lane, staged->ready);
	free(staged);
}

static cuda_result copy_staged(struct lane *lane, cuda_stream stream, cuda_pointer value,
			       const struct staged *staged, uint64_t offset, uint64_t bytes)
{
	struct slot *slot = &lane->slots[staged->first], *behind = slot + staged->count;
	cuda_pointer from = lane_slot_memory(lane, staged->first) + offset;
	cuda_event empty = behind[-1].empty;
	cuda_result result = CUDA_OK;

	CUDA_TRY(&result, cuStreamWaitEvent(stream, staged->ready->event, 0));
	CUDA_TRY(&result, cuMemcpyDtoDAsync_v2(value, from, bytes, stream));
	CUDA_TRY(&result, cuEventRecord(empty, stream));
	for (; slot < behind && !result; slot++)
		slot->emptied = empty;
	return result;
}

/*
 * Copies from host memory on the stream `late`. The copy waits until XLA's stream has reached this
 * take, because earlier work on XLA's stream may use the memory of the result. Later work on XLA's
 * stream waits for the copy. One event is enough for both waits: each wait refers to the last
 * record of the event before the wait was enqueued.
 */
static cuda_result copy_late(struct lane *lane, cuda_stream stream, cuda_pointer value,
			     const void *memory, uint64_t bytes, struct mark *done)
{
	cuda_result result = CUDA_OK;

	CUDA_TRY(&result, cuEventRecord(done->event, stream));
	CUDA_TRY(&result, cuStreamWaitEvent(lane->late, done->event, 0));
	CUDA_TRY(&result, cuMemcpyHtoDAsync_v2(value, memory, bytes, lane->late));
	CUDA_TRY(&result, cuEventRecord(done->event, lane->late));
	CUDA_TRY(&result, cuStreamWaitEvent(stream, done->event, 0));
	return result;
}

/*
 * Copies a block that is not on the device. Returns true if the finisher will release @claim after
 * the copy.
 */
static bool take_late(struct lane *lane, cuda_stream stream, cuda_pointer value,
		     struct claim *claim, uint64_t bytes, cuda_result *result)
{
	struct mark *done = lane_mark(lane);

	*result = CUDA_OUT_OF_MEMORY;
	if (!done)
		return false;
	*result = copy_late(lane, stream, value, claim->memory, bytes, done);
	if (!*result && !lane_finish(lane, done, claim->block, (struct finish){ .take = claim }))
		return true;
	lane_unmark(lane, done);
	if (!*result)
		*result = CUDA_OUT_OF_MEMORY;
	/* Wait, because the copy may have begun. */
	lane_wait_for_stream(lane, lane->late);
	return false;
}

/* Wakes the fetcher after a block was taken. @run is the execution that stored the block. */
static void tell_fetcher(struct lane *lane, int64_t run)
{
	pthread_mutex_lock(&lane->lock);
	lane->takes++;
	lane->is_fetching = true;
	lane->take_run = run;
	pthread_cond_signal(&lane->takes_come);
	pthread_mutex_unlock(&lane->lock);
}

void lane_look_again(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	/* Without a shared budget, the fetcher wakes only when a block is taken. */
	if (lane->put_bytes_most && lane->takes) {
		lane->takes++;
		lane->is_fetching = true;
		pthread_cond_signal(&lane->takes_come);
	}
	pthread_mutex_unlock(&lane->lock);
}

/* Releases the claim of a block that was staged in a context that has ended. */
static int fail_other_context(const struct lane *lane, struct claim *claim, char *words)
{
	const char *site = saved_site_name(claim->block->token);

	saved_release(claim);
	return saved_fail(words, ESTALE,
			  "the value saved at %s was in another context of device %u, which has ended",
			  site, lane->device);
}

int lane_take(struct lane *lane, cuda_stream stream, cuda_pointer value, struct claim *claim,
	      uint64_t bytes, char *words)
{
	const struct saved *block = claim->block;
	struct staged *staged = block->staged;
	bool is_whole = bytes == block->bytes, is_handed_on = false;
	const int64_t run = block->run;
	cuda_result result = CUDA_OK;

	if (staged && staged->lane != lane)
		return fail_other_context(lane, claim, words);
	pthread_mutex_lock(&lane->lock);
	if (staged) {
		result = copy_staged(lane, stream, value, staged, claim->offset, bytes);
		staged->is_taken = true;
	} else if (bytes) {
		is_handed_on = take_late(lane, stream, value, claim, bytes, &result);
	}
	pthread_mutex_unlock(&lane->lock);
	if (staged) {
		TRANSFER_COUNT(lane->device, ahead_total, 1);
	} else if (bytes) {
		TRANSFER_COUNT(lane->device, late_total, 1);
		TRANSFER_COUNT(lane->device, to_device_bytes_total, result ? 0 : bytes);
		TRANSFER_COUNT(lane->device, host_waits_total, !is_handed_on);
	}
	if (!is_handed_on)
		saved_release(claim);
	/*
	 * Wake the fetcher only now, so that no prefetch precedes this copy. The slots of the taken
	 * block are free now, too.
	 */
	if (is_whole)
		tell_fetcher(lane, run);
	return result ? cuda_failed(result, "copy a value to the device", lane->device, words,
				    SAVED_WORDS) : 0;
}
