/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The two threads of a lane; see stream.h. The finisher waits for copies in order, and then commits
 * or releases their blocks. The fetcher copies blocks to the device before they are taken. While
 * slots are free, the fetcher copies blocks that were put by one execution: the execution whose
 * block was taken last. The fetcher begins with the newest of these blocks.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "xla/device_wait.h"
#include "xla/memory.h"
#include "xla/stream.h"

static void fill_is_done(struct lane *lane, struct saved *block, cuda_result result)
{
	char words[SAVED_WORDS];
	int error;

	if (result) {
		error = cuda_failed(result, "copy a value to the host", lane->device, words,
				  sizeof(words));
		saved_failed(block, error, words);
		return;
	}
	saved_filled(block);
}

/*
 * Waits for all streams of a lane. The caller can then release a block, because no copy accesses it
 * any more. If the context has ended, its streams and their work have ended too.
 */
static void let_streams_end(const struct lane *lane)
{
	if (!lane_has_context(lane))
		return;
	lane_wait_for_stream(lane, lane->out);
	lane_wait_for_stream(lane, lane->ahead);
	lane_wait_for_stream(lane, lane->late);
}

static cuda_result wait_for_finish(const struct lane *lane, const struct finish *finish)
{
	struct device_wait wait;
	cuda_result result;

	device_wait_begin(&wait, lane->device, finish->bytes,
			  finish->put ? "a copy to the host of a value put at" :
			  "a copy to the device of a value put at",
			  saved_site_name(finish->token));
	result = cuda.cuEventSynchronize(finish->mark->event);
	device_wait_end(&wait);
	return result;
}

/*
 * Updates the counters at the end of a prefetch. If devices share a budget, wakes the fetcher.
 * Caller holds the lock.
 */
static void end_ahead(struct lane *lane, uint64_t bytes)
{
	lane->ahead_bytes -= bytes;
	if (!lane->put_bytes_most)
		return;
	lane->takes++;
	lane->is_fetching = true;
	pthread_cond_signal(&lane->takes_come);
}

static void *finisher_thread(void *data)
{
	struct lane *lane = data;
	cuda_result result, no_context = CUDA_INVALID_CONTEXT;
	struct finish *finish;
	cuda_context popped;

	pthread_mutex_lock(&lane->lock);
	for (;;) {
		finish = lane->finishes;
		if (!finish && lane->is_ending)
			break;
		if (!finish) {
			pthread_cond_wait(&lane->finishes_come, &lane->lock);
			continue;
		}
		lane->finishes = finish->next;
		if (!lane->finishes)
			lane->last_finish = &lane->finishes;
		pthread_mutex_unlock(&lane->lock);
		if (no_context)
			no_context = cuda.cuCtxPushCurrent_v2(lane->context);
		result = no_context;
		if (!result)
			result = wait_for_finish(lane, finish);
		if (result)
			let_streams_end(lane);
		if (finish->put)
			fill_is_done(lane, finish->put, result);
		else if (finish->take)
			saved_release(finish->take);
		else
			memory_release(finish->key);
		pthread_mutex_lock(&lane->lock);
		lane_unmark(lane, finish->mark);
		if (finish->put)
			lane->put_bytes -= finish->bytes;
		else if (!finish->take)
			end_ahead(lane, finish->bytes);
		free(finish);
		__atomic_sub_fetch(&lane->unfinished, 1, __ATOMIC_RELAXED);
		pthread_cond_broadcast(&lane->is_finished);
	}
	pthread_mutex_unlock(&lane->lock);
	if (!no_context)
		cuda.cuCtxPopCurrent_v2(&popped);
	return NULL;
}

static void unstage_block(void *data)
{
	struct staged *staged = data;
	struct lane *lane = staged->lane;

	pthread_mutex_lock(&lane->lock);
	TRANSFER_COUNT(lane->device, wasted_bytes_total, staged->is_taken ? 0 : staged->bytes);
	lane_unstage(lane, staged);
	pthread_mutex_unlock(&lane->lock);
}

/*
 * Returns the first of @count consecutive slots in the mask @slots, or TAKE_SLOTS if there are
 * none.
 */
static unsigned int find_span(uint32_t slots, unsigned int count)
{
	const uint32_t span = (UINT32_C(1) << count) - 1;
	unsigned int first;

	for (first = 0; first + count <= TAKE_SLOTS; first++)
		if ((slots >> first & span) == span)
			return first;
	return TAKE_SLOTS;
}

/*
 * Returns the slots that the fetcher may fill: the free slots. If devices share a budget, the
 * device must also have emptied these slots (stream.h).
 */
static uint32_t slots_to_fill(const struct lane *lane)
{
	uint32_t slots = lane->free_slots;
	unsigned int i;

	if (!lane->put_bytes_most)
		return slots;
	for (i = 0; i < TAKE_SLOTS; i++)
		if (slots >> i & 1 && cuda.cuEventQuery(lane->slots[PUT_SLOTS + i].emptied))
			slots &= ~(UINT32_C(1) << i);
	return slots;
}

static uint64_t longest_span(uint32_t slots)
{
	unsigned int count = TAKE_SLOTS;

	while (count && find_span(slots, count) == TAKE_SLOTS)
		count--;
	return count;
}

/*
 * Copies the block into the span of @staged. The stream `ahead` first waits, on the device, until
 * no other stream copies from a part of the span.
 */
static cuda_result fill_slots(struct lane *lane, const void *memory, const struct staged *staged)
{
	const struct slot *slot = &lane->slots[staged->first], *behind = slot + staged->count;
	cuda_event before = NULL;
	cuda_result result = CUDA_OK;

	for (; slot < behind; slot++) {
		if (slot->emptied != before)
			CUDA_TRY(&result, cuStreamWaitEvent(lane->ahead, slot->emptied, 0));
		before = slot->emptied;
	}
	CUDA_TRY(&result, cuMemcpyHtoDAsync_v2(lane_slot_memory(lane, staged->first), memory,
					       staged->bytes, lane->ahead));
	return result;
}

/* Returns the first slot to fill, or TAKE_SLOTS if too few consecutive slots are free. */
static unsigned int find_slots(const struct lane *lane, uint64_t bytes)
{
	unsigned int count = lane_slots_for(lane, bytes);

	return count <= TAKE_SLOTS ? find_span(slots_to_fill(lane), count) : TAKE_SLOTS;
}

/* Copies a held block into slots. On failure, returns NULL; no copy reads the block then. */
static struct staged *stage_in_slots(struct lane *lane, const struct saved *block, const void *memory)
{
	unsigned int count = lane_slots_for(lane, block->bytes);
	unsigned int first = find_slots(lane, block->bytes);
	struct staged *staged = first < TAKE_SLOTS ? calloc(1, sizeof(*staged)) : NULL;
	cuda_result result;

	if (staged)
		staged->ready = lane_mark(lane);
	if (!staged || !staged->ready) {
		free(staged);
		return NULL;
	}
	staged->lane = lane;
	staged->bytes = block->bytes;
	staged->first = PUT_SLOTS + first;
	staged->count = count;
	lane->free_slots &= ~(((UINT32_C(1) << count) - 1) << first);
	__atomic_add_fetch(&lane->staged_bytes, staged->bytes, __ATOMIC_RELAXED);
	result = fill_slots(lane, memory, staged);
	CUDA_TRY(&result, cuEventRecord(staged->ready->event, lane->ahead));
	if (!result)
		return staged;
	lane_wait_for_stream(lane, lane->ahead);
	lane_unstage(lane, staged);
	return NULL;
}

/*
 * Copies a block into slots. When the copy has ended, the finisher releases the block's host
 * memory. Returns NULL on failure; no copy reads the block then. Caller holds the lock.
 */
static struct staged *stage_block(struct lane *lane, const struct saved *block,
				  const void *memory)
{
	struct mark *done = lane_mark(lane);
	struct staged *staged = done ? stage_in_slots(lane, block, memory) : NULL;
	cuda_result result = CUDA_OK;

	if (staged) {
		CUDA_TRY(&result, cuEventRecord(done->event, lane->ahead));
		if (!result &&
		    !lane_finish(lane, done, block, (struct finish){ .key = block->key })) {
			lane->ahead_bytes += block->bytes;
			return staged;
		}
		lane_wait_for_stream(lane, lane->ahead);
		lane_unstage(lane, staged);
	}
	if (done)
		lane_unmark(lane, done);
	return NULL;
}

/* Returns the length of the longest block that may be prefetched now. */
static uint64_t longest_ahead(const struct lane *lane)
{
	uint64_t slots = longest_span(slots_to_fill(lane)) * lane->slot_bytes;
	uint64_t most = lane->put_bytes_most / 2;

	if (!most || !lane->ahead_bytes)
		return slots;
	most = most > lane->ahead_bytes ? most - lane->ahead_bytes : 0;
	return most < slots ? most : slots;
}

/*
 * Prefetches one block. Returns false if no block can be prefetched now, or if the copy failed.
 * Caller holds the lock; this function drops and retakes it.
 */
static bool fetch_block(struct lane *lane)
{
	uint64_t bytes_max = longest_ahead(lane);
	struct staged *staged = NULL;
	int64_t run = lane->take_run;
	const void *memory;
	struct saved *block;

	pthread_mutex_unlock(&lane->lock);
	block = bytes_max ? saved_next(lane->device, run, bytes_max, &memory) : NULL;
	pthread_mutex_lock(&lane->lock);
	if (!block)
		return false;
	staged = stage_block(lane, block, memory);
	pthread_mutex_unlock(&lane->lock);
	if (staged) {
		TRANSFER_COUNT(lane->device, ahead_bytes_total, block->bytes);
		TRANSFER_COUNT(lane->device, to_device_bytes_total, block->bytes);
		saved_staged(block, staged, unstage_block);
	} else {
		saved_not_staged(block);
	}
	pthread_mutex_lock(&lane->lock);
	return !!staged;
}

static void *fetcher_thread(void *data)
{
	struct lane *lane = data;
	cuda_result no_context = CUDA_INVALID_CONTEXT;
	uint64_t seen = 0, takes;
	cuda_context popped;

	pthread_mutex_lock(&lane->lock);
	while (!lane->is_ending) {
		takes = lane->takes;
		if (seen == takes) {
			lane->is_fetching = false;
			pthread_cond_broadcast(&lane->is_finished);
			pthread_cond_wait(&lane->takes_come, &lane->lock);
			continue;
		}
		if (no_context)
			no_context = cuda.cuCtxPushCurrent_v2(lane->context);
		/*
		 * Sleep until the next change of lane->takes. A block whose prefetch failed is
		 * copied when the program takes it.
		 */
		if (no_context || !fetch_block(lane))
			seen = takes;
	}
	pthread_mutex_unlock(&lane->lock);
	if (!no_context)
		cuda.cuCtxPopCurrent_v2(&popped);
	return NULL;
}

static void end_finisher(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	lane->is_ending = true;
	pthread_cond_signal(&lane->finishes_come);
	pthread_mutex_unlock(&lane->lock);
	pthread_join(lane->finisher, NULL);
}

int lane_start_threads(struct lane *lane)
{
	int error = thread_create(&lane->finisher, "actmem-finish", finisher_thread, lane);

	if (error)
		return error;
	error = thread_create(&lane->fetcher, "actmem-fetch", fetcher_thread, lane);
	if (error)
		end_finisher(lane);
	return error;
}

void lane_end_threads(struct lane *lane)
{
	end_finisher(lane);
	pthread_mutex_lock(&lane->lock);
	pthread_cond_signal(&lane->takes_come);
	pthread_mutex_unlock(&lane->lock);
	pthread_join(lane->fetcher, NULL);
}
