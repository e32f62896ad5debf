// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Takes that the host does not wait for: their blocks are foreseen (foresee.c), and copied
 * through the ring as if the tokens were known. The device compares: behind its copy
 * XLA's stream has the token, in memory of the host, and waits until that is the one
 * that was foreseen, which it is at once. If it is another one, the finisher copies what is
 * wanted where the wrong value is, by a stream of its own, and then writes the token
 * that the stream waits for. So a wrong value is never used. A foreseen block stays in memory,
 * and in its slots, until its token has been seen: one that another take wants is still there.
 *
 * This is the one place where the device may wait for the host. All that the finisher
 * then needs is in memory, or comes there by copies that were begun before that take. It
 * comes to the takes in the order of their calls, and while tokens are compared slots are
 * filled anew only once they are empty: so nothing that it waits for is behind the take.
 * But a call of CUDA's that waits for all of the device meanwhile waits, too. So nothing is
 * foreseen where programs choose what they take, nor where blocks may be in files or
 * devices share a budget.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "xla/device_wait.h"
#include "xla/memory.h"
#include "xla/stream.h"

#define LATE_MOST	2		/* of values that are longer than all slots */

int lane_foresees(const struct lane *lane, int64_t run)
{
	return lane->can_check && !lane->put_bytes_most && !memory_spills() &&
	       saved_foresees(lane->device, run);
}

static int has_room(struct lane *lane, uint64_t bytes)
{
	if (!lane->free_checks)
		return 0;
	if (lane_slots_for(lane, bytes) > TAKE_SLOTS)
		return lane->checking < LATE_MOST;
	return !lane->checking || lane_has_slots(lane, bytes);
}

/* The device has work until then: that of all takes whose slots are to be free. */
static void wait_for_room(struct lane *lane, const struct origin *taker, uint64_t bytes)
{
	struct device_wait wait;

	if (has_room(lane, bytes))
		return;
	TRANSFER_COUNT(lane->device, host_waits_total, 1);
	device_wait_begin(&wait, lane->device, bytes, "slots of its ring", NULL);
	do {
		pthread_cond_wait(&lane->is_finished, &lane->lock);
	} while (!has_room(lane, bytes) && lane_foresees(lane, taker->run));
	device_wait_end(&wait);
}

/* One that the finisher does not have. */
static void free_foreseen(struct lane *lane, struct foreseen *foreseen)
{
	if (foreseen->mark)
		lane_unmark(lane, foreseen->mark);
	free(foreseen);
}

/* A foreseen take that is not yet begun; NULL: there is none. */
static struct foreseen *foresee(struct lane *lane, const struct origin *taker, uint64_t bytes,
				int *is_filling)
{
	struct foreseen *foreseen = calloc(1, sizeof(*foreseen));

	if (!foreseen)
		return NULL;
	foreseen->mark = lane_mark(lane);
	if (foreseen->mark)
		foreseen->block = saved_foresee(taker, bytes, &foreseen->memory, is_filling);
	if (foreseen->block) {
		foreseen->token = foreseen->block->token;
		return foreseen;
	}
	free_foreseen(lane, foreseen);
	return NULL;
}

static cuda_result copy_value(struct lane *lane, cuda_stream stream, struct foreseen *foreseen,
			      int is_filling)
{
	const struct saved *block = foreseen->block;
	cuda_result result;

	foreseen->staged = lane_stage(lane, foreseen->memory, block->bytes, is_filling);
	if (foreseen->staged) {
		TRANSFER_COUNT(lane->device, ahead_total, 1);
		TRANSFER_COUNT(lane->device, ahead_bytes_total, block->bytes);
		result = lane_copy_staged(lane, stream, foreseen->value, foreseen->staged, 0,
					  block->bytes);
	} else {
		TRANSFER_COUNT(lane->device, late_total, 1);
		result = lane_copy_late(lane, stream, foreseen->value, foreseen->memory,
					block->bytes, foreseen->mark, is_filling);
	}
	TRANSFER_COUNT(lane->device, to_device_bytes_total, block->bytes);
	return result;
}

static cuda_result wait_for_word(cuda_stream stream, const uint64_t *word, uint64_t token)
{
	cuda_pointer address = (cuda_pointer)(uintptr_t)word;
	cuda_result result = CUDA_OK;

	CUDA_TRY(&result, cuStreamWaitValue32_v2(stream, address, (uint32_t)token,
						 CUDA_WAIT_VALUE_EQ));
	CUDA_TRY(&result, cuStreamWaitValue32_v2(stream, address + 4, (uint32_t)(token >> 32),
						 CUDA_WAIT_VALUE_EQ));
	return result;
}

/* Once it is the finisher's, that ends it whatever fails here. */
static cuda_result begin(struct lane *lane, cuda_stream stream, cuda_pointer from,
			 struct foreseen *foreseen, int is_filling)
{
	struct check *check = lane->free_checks;
	cuda_result result = CUDA_OK;

	/* The take that had the word before waits for it no more, then. */
	CUDA_TRY(&result, cuStreamWaitEvent(stream, check->passed, 0));
	CUDA_TRY(&result, cuMemcpyDtoHAsync_v2(check->word, from, sizeof(*check->word), stream));
	if (!result)
		result = copy_value(lane, stream, foreseen, is_filling);
	CUDA_TRY(&result, cuEventRecord(foreseen->mark->event, stream));
	foreseen->check = check;
	if (!result && lane_finish_foreseen(lane, foreseen))
		result = CUDA_OUT_OF_MEMORY;
	if (result) {
		foreseen->check = NULL;
		return result;
	}
	lane->free_checks = check->next;
	lane->checking++;
	result = wait_for_word(stream, check->word, foreseen->token);
	CUDA_TRY(&result, cuEventRecord(check->passed, stream));
	return result;
}

static void give_up(struct lane *lane, struct foreseen *foreseen)
{
	struct saved *block = foreseen->block;

	/* They read the block until then. */
	lane_wait_for_stream(lane, lane->ahead);
	lane_wait_for_stream(lane, lane->late);
	if (foreseen->staged)
		lane_unstage(lane, foreseen->staged);
	free_foreseen(lane, foreseen);
	saved_return(block);
}

int lane_take_foreseen(struct lane *lane, cuda_stream stream, cuda_pointer from,
		       cuda_pointer value, uint64_t bytes, const struct origin *taker,
		       char *words)
{
	struct foreseen *foreseen = NULL;
	cuda_result result = CUDA_OK;
	int is_filling = 0;

	if (!taker->site || !taker->ends || !bytes || !lane_foresees(lane, taker->run))
		return 0;
	pthread_mutex_lock(&lane->lock);
	wait_for_room(lane, taker, bytes);
	/* Claimed and queued under one lock, so that the finisher sees who has it. */
	if (lane->free_checks && lane_foresees(lane, taker->run))
		foreseen = foresee(lane, taker, bytes, &is_filling);
	if (foreseen) {
		foreseen->value = value;
		foreseen->layout = taker->layout;
		result = begin(lane, stream, from, foreseen, is_filling);
		if (result && !foreseen->check)
			give_up(lane, foreseen);
	}
	pthread_mutex_unlock(&lane->lock);
	if (result)
		return cuda_failed(result, "copy a value to it", lane->device, words, SAVED_WORDS);
	if (foreseen)
		TRANSFER_COUNT(lane->device, foreseen_total, 1);
	return !!foreseen;
}

int lane_settle(struct lane *lane)
{
	struct device_wait wait;
	int waits;

	pthread_mutex_lock(&lane->lock);
	waits = !!lane->checking;
	if (waits) {
		TRANSFER_COUNT(lane->device, host_waits_total, 1);
		device_wait_begin(&wait, lane->device, 0, "values to it", NULL);
		while (lane->checking)
			pthread_cond_wait(&lane->is_finished, &lane->lock);
		device_wait_end(&wait);
	}
	pthread_mutex_unlock(&lane->lock);
	return waits;
}

/* Of a take that was foreseen behind this one; and it has it no more. */
static const struct foreseen *steal(struct lane *lane, uint64_t token,
				    const struct foreseen *like)
{
	struct foreseen *found = NULL;
	struct finish *finish;

	pthread_mutex_lock(&lane->lock);
	for (finish = lane->finishes; finish && !found; finish = finish->next)
		if (finish->foreseen && finish->foreseen->token == token &&
		    finish->foreseen->block->bytes == like->block->bytes &&
		    finish->foreseen->layout == like->layout && !finish->foreseen->is_stolen)
			found = finish->foreseen;
	if (found)
		found->is_stolen = 1;
	pthread_mutex_unlock(&lane->lock);
	return found;
}

static cuda_result copy_claimed(struct lane *lane, cuda_pointer to, struct saved *block)
{
	const struct staged *staged = block->staged;
	cuda_result result = CUDA_OK;

	if (!staged)
		return cuda.cuMemcpyHtoDAsync_v2(to, block->held, block->bytes, lane->mend);
	CUDA_TRY(&result, cuStreamWaitEvent(lane->mend, staged->ready->event, 0));
	CUDA_TRY(&result, cuMemcpyDtoDAsync_v2(to, lane_slot_memory(lane, staged->first),
					       block->bytes, lane->mend));
	return result;
}

/* The value of @token to where another one was copied. */
static int mend_value(struct lane *lane, const struct foreseen *foreseen, uint64_t token,
		      char *words)
{
	const struct saved *wrong = foreseen->block;
	const struct origin taker = {
		.ends = 1,
		.shape = wrong->shape,
		.layout = foreseen->layout,
		.run = wrong->run,
		.device = wrong->device,
		.is_gpu = 1,
	};
	const struct foreseen *other = steal(lane, token, foreseen);
	const struct rows rows = { .id = token, .count = 1 };
	cuda_result result = CUDA_OK;
	struct saved *block = NULL;
	int ret;

	if (other)
		result = cuda.cuMemcpyHtoDAsync_v2(foreseen->value, other->memory, wrong->bytes,
						   lane->mend);
	else if (!token)
		return lane_clear(lane, lane->mend, foreseen->value, wrong->bytes, words);
	if (!other) {
		ret = saved_claim(&rows, wrong->bytes, &taker, &block, words);
		if (ret)
			return ret;
		if (block->examples > 1) {
			/* Only the device knows which example its token names. */
			snprintf(words, SAVED_WORDS,
				 "actmem: a take of one example of %" PRIu64 " was predicted wrongly; set ACTMEM_DEVICE_FORESEE=0",
				 block->examples);
			saved_release(block);
			return -EINVAL;
		}
		result = copy_claimed(lane, foreseen->value, block);
	}
	CUDA_TRY(&result, cuStreamSynchronize(lane->mend));
	if (block)
		saved_release(block);
	return result ? cuda_failed(result, "copy a value to it", lane->device, words,
				    SAVED_WORDS) : 0;
}

/*
 * The call that took it has returned long ago. So the next one fails, and the value is one
 * that cannot be mistaken: not a number, in each of JAX's types of 8 bits and more that has such.
 */
static void spoil_value(struct lane *lane, const struct foreseen *foreseen, const char *words)
{
	cuda.cuMemsetD32Async(foreseen->value, UINT32_MAX, (foreseen->block->bytes + 3) / 4,
			      lane->mend);
	pthread_mutex_lock(&lane->lock);
	if (!lane->failure)
		lane->failure = strdup(words);
	pthread_mutex_unlock(&lane->lock);
}

int lane_failed(struct lane *lane, char *words)
{
	char *failure;

	pthread_mutex_lock(&lane->lock);
	failure = lane->failure;
	lane->failure = NULL;
	pthread_mutex_unlock(&lane->lock);
	if (failure)
		snprintf(words, SAVED_WORDS, "%s", failure);
	free(failure);
	return !!failure;
}

/* The stream waits for the token that was foreseen, and goes no further meanwhile. */
static void mend(struct lane *lane, const struct foreseen *foreseen, uint64_t token)
{
	char words[SAVED_WORDS];

	saved_unlearn(foreseen->block);
	saved_foresees_no_more(lane->device, foreseen->block->run);
	TRANSFER_COUNT(lane->device, mended_total, 1);
	TRANSFER_COUNT(lane->device, to_device_bytes_total, foreseen->block->bytes);
	if (mend_value(lane, foreseen, token, words))
		spoil_value(lane, foreseen, words);
	cuda.cuStreamSynchronize(lane->mend);
}

void lane_check(struct lane *lane, struct foreseen *foreseen, cuda_result result)
{
	struct check *check = foreseen->check;
	const uint64_t token = __atomic_load_n(check->word, __ATOMIC_ACQUIRE);
	int is_right = result || token == foreseen->token;

	if (!is_right)
		mend(lane, foreseen, token);
	pthread_mutex_lock(&lane->lock);
	if (foreseen->staged)
		lane_unstage(lane, foreseen->staged);
	pthread_mutex_unlock(&lane->lock);
	if (is_right || foreseen->is_stolen)
		saved_foreseen(foreseen->block);
	else
		saved_return(foreseen->block);
	if (!is_right)
		__atomic_store_n(check->word, foreseen->token, __ATOMIC_RELEASE);
	pthread_mutex_lock(&lane->lock);
	check->next = lane->free_checks;
	lane->free_checks = check;
	lane->checking--;
	pthread_mutex_unlock(&lane->lock);
	free(foreseen);
}
