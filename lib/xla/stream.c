/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Makes and ends lanes; see stream.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "xla/counts.h"
#include "xla/device_wait.h"
#include "xla/forked.h"
#include "xla/generation.h"
#include "xla/memory.h"
#include "xla/stream.h"

/*
 * Each device has its own lock for making lanes. A thread that holds this lock can wait for the
 * device, in a CUDA call that allocates. The device can wait for another device's part of a
 * collective. Before a thread enqueues that part, it may have to make a lane, so one lock for all
 * devices could cause a deadlock. No thread calls CUDA while it holds the list's lock.
 */
static pthread_mutex_t making[ACTMEM_XLA_DEVICES_MAX] = {
	[0 ... ACTMEM_XLA_DEVICES_MAX - 1] = PTHREAD_MUTEX_INITIALIZER,
};
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct lane *lanes;
static pthread_mutex_t one_trim = PTHREAD_MUTEX_INITIALIZER;	/* allows one trim at a time */

/*
 * Called in a forked child (forked.h). It need not check the locks of lanes, because it returns
 * false if the parent had a lane.
 */
static bool lanes_are_free(void)
{
	unsigned int i;

	for (i = 0; i < ACTMEM_XLA_DEVICES_MAX; i++)
		if (!forked_lock_is_free(&making[i]))
			return false;
	return forked_lock_is_free(&one_trim) && forked_lock_is_free(&lanes_lock) && !lanes &&
	       cuda_is_free();
}
FORKED_WATCH(lanes_are_free)

/*
 * Frees the CUDA objects of a lane. The lane's context must be current. If the context ends
 * meanwhile, its objects end with it. The calls then fail, which does no harm.
 */
static void free_device_side(struct lane *lane)
{
	struct mark *mark;
	unsigned int i;

	if (lane->tokens)
		cuda.cuMemFreeHost(lane->tokens);
	for (i = 0; i < SLOTS; i++) {
		if (lane->slots[i].filled)
			cuda.cuEventDestroy_v2(lane->slots[i].filled);
		if (lane->slots[i].empty)
			cuda.cuEventDestroy_v2(lane->slots[i].empty);
	}
	for (i = 0; i < MAILBOXES; i++)
		if (lane->mailboxes[i].event)
			cuda.cuEventDestroy_v2(lane->mailboxes[i].event);
	for (mark = lane->free_marks; mark; mark = mark->next)
		cuda.cuEventDestroy_v2(mark->event);
	if (lane->out)
		cuda.cuStreamDestroy_v2(lane->out);
	if (lane->ahead)
		cuda.cuStreamDestroy_v2(lane->ahead);
	if (lane->late)
		cuda.cuStreamDestroy_v2(lane->late);
	if (lane->ring)
		cuda.cuMemFree_v2(lane->ring);
}

static void free_lane(struct lane *lane)
{
	struct mark *mark;

	while (lane->free_marks) {
		mark = lane->free_marks;
		lane->free_marks = mark->next;
		free(mark);
	}
	pthread_mutex_destroy(&lane->lock);
	pthread_cond_destroy(&lane->finishes_come);
	pthread_cond_destroy(&lane->takes_come);
	pthread_cond_destroy(&lane->mailboxes_come);
	pthread_cond_destroy(&lane->is_finished);
	free(lane);
}

static int allocate_ring(struct lane *lane, uint64_t bytes, char *words)
{
	size_t left = 0, total;
	cuda_result result = cuda.cuMemAlloc_v2(&lane->ring, bytes);

	if (result == CUDA_OUT_OF_MEMORY) {
		lane->ring = 0;
		cuda.cuMemGetInfo_v2(&left, &total);
		return saved_fail(words, ENOMEM,
				  "device %" PRIu32 " has %zu bytes left, but the ring of device memory needs %" PRIu64
				  ": let XLA allocate less (XLA_CLIENT_MEM_FRACTION, 0.75 by default), or make the ring smaller (%s)",
				  lane->device, left, bytes,
				  knob_name(KNOB_DEVICE_RING, ACTMEM_NAMES_PYTHON));
	}
	return result ? cuda_failed(result, "allocate the ring for copies", lane->device, words,
				    SAVED_WORDS) : 0;
}

static cuda_result make_device_side(struct lane *lane)
{
	const unsigned int flags = CUDA_EVENT_DISABLE_TIMING;
	cuda_result result = CUDA_OK;
	unsigned int i;

	CUDA_TRY(&result, cuStreamCreate(&lane->out, CUDA_STREAM_NON_BLOCKING));
	CUDA_TRY(&result, cuStreamCreate(&lane->ahead, CUDA_STREAM_NON_BLOCKING));
	CUDA_TRY(&result, cuStreamCreate(&lane->late, CUDA_STREAM_NON_BLOCKING));
	for (i = 0; i < SLOTS; i++) {
		CUDA_TRY(&result, cuEventCreate(&lane->slots[i].filled, flags));
		CUDA_TRY(&result, cuEventCreate(&lane->slots[i].empty, flags));
		lane->slots[i].emptied = lane->slots[i].empty;
	}
	lane->free_slots = (UINT32_C(1) << TAKE_SLOTS) - 1;
	CUDA_TRY(&result, cuMemHostAlloc((void **)&lane->tokens,
					 MAILBOXES * MAILBOX_TOKENS * sizeof(*lane->tokens),
					 CUDA_REGISTER_PORTABLE));
	for (i = 0; i < MAILBOXES; i++) {
		CUDA_TRY(&result, cuEventCreate(&lane->mailboxes[i].event, flags));
		lane->mailboxes[i].tokens = &lane->tokens[i * MAILBOX_TOKENS];
		lane->mailboxes[i].next = lane->free_mailboxes;
		lane->free_mailboxes = &lane->mailboxes[i];
	}
	return result;
}

/* Gives a lane its ring, streams, events and threads. The lane's context must be current. */
static int fill_lane(struct lane *lane, uint64_t ring_bytes, char *words)
{
	cuda_result result;
	int error;

	lane->slot_bytes = ring_bytes / SLOTS / SLOT_ALIGN * SLOT_ALIGN;
	error = allocate_ring(lane, lane->slot_bytes * SLOTS, words);
	if (error)
		return error;
	result = make_device_side(lane);
	if (result)
		return cuda_failed(result, "make streams and events", lane->device, words,
				   SAVED_WORDS);
	error = lane_start_threads(lane);
	if (!error)
		return 0;
	return saved_fail(words, error, "cannot start threads for device %" PRIu32, lane->device);
}

/*
 * Returns the most bytes that a device may have in unfilled blocks; 0: no limit. Several devices
 * share half of the budget for unfilled blocks; the other half remains for filled blocks.
 */
static uint64_t share_of_budget(void)
{
	struct actmem_store_stats store;
	int count = 1;

	ACTMEM_INIT(&store);
	if (cuda.cuDeviceGetCount(&count) || count < 2 || actmem_xla_store_stats(&store))
		return 0;
	return store.budget_bytes / 2 / (uint64_t)count;
}

static struct lane *make_lane(uint32_t device, cuda_context context, unsigned long long id,
			      uint64_t ring_bytes, char *words, int *error)
{
	struct lane *lane = calloc(1, sizeof(*lane));

	if (!lane) {
		*error = saved_fail(words, ENOMEM, "no memory for bookkeeping");
		return NULL;
	}
	lane->device = device;
	lane->context = context;
	lane->context_id = id;
	lane->last_finish = &lane->finishes;
	pthread_mutex_init(&lane->lock, NULL);
	pthread_cond_init(&lane->finishes_come, NULL);
	pthread_cond_init(&lane->takes_come, NULL);
	pthread_cond_init(&lane->mailboxes_come, NULL);
	pthread_cond_init(&lane->is_finished, NULL);
	lane->put_bytes_most = share_of_budget();
	*error = fill_lane(lane, ring_bytes, words);
	if (!*error)
		return lane;
	free_device_side(lane);
	free_lane(lane);
	return NULL;
}

/*
 * Finds the lane of a context, and adds a user to the lane. If an ended context had the same
 * handle, sets @is_dead of that context's lane.
 */
static struct lane *find_lane(cuda_context context, unsigned long long id)
{
	struct lane *lane, *found = NULL;

	pthread_mutex_lock(&lanes_lock);
	for (lane = lanes; lane; lane = lane->next) {
		if (lane->context != context)
			continue;
		if (lane->context_id == id)
			found = lane;
		else
			lane->is_dead = true;
	}
	if (found)
		found->users++;
	pthread_mutex_unlock(&lanes_lock);
	return found;
}

/* Returns the lane of a context. Makes the lane if necessary. The context must be current. */
static struct lane *have_lane(uint32_t device, cuda_context context, unsigned long long id,
			      char *words, int *error)
{
	struct lane *lane = find_lane(context, id);
	struct device_wait wait;
	uint64_t ring_bytes;

	if (lane)
		return lane;
	*error = memory_pin(device, &ring_bytes, words, SAVED_WORDS);
	if (*error)
		return NULL;
	device_wait_begin(&wait, device, ring_bytes, "a ring for copies", NULL);
	pthread_mutex_lock(&making[device]);
	lane = find_lane(context, id);
	if (!lane) {
		lane = make_lane(device, context, id, ring_bytes, words, error);
		pthread_mutex_lock(&lanes_lock);
		if (lane) {
			lane->users++;
			lane->next = lanes;
			lanes = lane;
		}
		pthread_mutex_unlock(&lanes_lock);
	}
	pthread_mutex_unlock(&making[device]);
	device_wait_end(&wait);
	return lane;
}

/*
 * Fails if XLA records the stream into a CUDA graph. XLA should not do so: it records only handlers
 * that declare support for graphs, and actmem's handlers do not (stream_handlers.c). If XLA
 * recorded one of these handlers, each launch of the graph would silently use the same values.
 */
static int check_not_captured(uint32_t device, cuda_stream stream, char *words)
{
	unsigned int status = CUDA_CAPTURE_NONE;
	cuda_result result = cuda.cuStreamIsCapturing(stream, &status);

	if (result)
		return cuda_failed(result, "use XLA's stream", device, words, SAVED_WORDS);
	if (status == CUDA_CAPTURE_NONE)
		return 0;
	return saved_fail(words, EOPNOTSUPP,
			  "XLA records its work on device %" PRIu32 " as a CUDA graph, which would use the same values in each run; set XLA_FLAGS=--xla_gpu_enable_command_buffer= (with an empty value)",
			  device);
}

struct lane *lane_enter(uint32_t device, cuda_stream stream, char *words, int *error)
{
	unsigned long long id = 0;
	cuda_context context;
	cuda_result result;
	struct lane *lane;

	if (device >= ACTMEM_XLA_DEVICES_MAX) {
		*error = saved_fail(words, ERANGE, "the process uses device %" PRIu32 ", but only %d devices are supported",
				    device, ACTMEM_XLA_DEVICES_MAX);
		return NULL;
	}
	*error = saved_check(words);
	if (!*error)
		*error = cuda_load(CUDA_COPIES, words, SAVED_WORDS);
	if (!*error)
		*error = check_not_captured(device, stream, words);
	if (*error)
		return NULL;
	result = cuda_context_of(stream, &context);
	CUDA_TRY(&result, cuCtxGetId(context, &id));
	CUDA_TRY(&result, cuCtxPushCurrent_v2(context));
	if (result) {
		*error = cuda_failed(result, "use XLA's context", device, words, SAVED_WORDS);
		return NULL;
	}
	lane = have_lane(device, context, id, words, error);
	if (!lane)
		cuda.cuCtxPopCurrent_v2(&context);
	return lane;
}

void lane_leave(struct lane *lane)
{
	cuda_context popped;

	cuda.cuCtxPopCurrent_v2(&popped);
	pthread_mutex_lock(&lanes_lock);
	lane->users--;
	pthread_mutex_unlock(&lanes_lock);
}

static bool is_at_work(const struct lane *lane)
{
	return lane->unfinished || lane->is_fetching;
}

/* Waits for the lane's copies, and for its fetcher to become idle. */
static void wait_for_work(struct lane *lane)
{
	struct device_wait wait;

	device_wait_begin(&wait, lane->device, 0, "copies of values", NULL);
	pthread_mutex_lock(&lane->lock);
	while (is_at_work(lane))
		pthread_cond_wait(&lane->is_finished, &lane->lock);
	pthread_mutex_unlock(&lane->lock);
	device_wait_end(&wait);
}

static void end_lane(struct lane *lane)
{
	cuda_context popped;

	lane_end_threads(lane);
	if (lane_has_context(lane) && !cuda.cuCtxPushCurrent_v2(lane->context)) {
		free_device_side(lane);
		cuda.cuCtxPopCurrent_v2(&popped);
	}
	free_lane(lane);
}

/* Returns the next lane that no handler uses, and adds the caller as a user. */
static struct lane *next_unused(struct lane *lane)
{
	pthread_mutex_lock(&lanes_lock);
	lane = lane ? lane->next : lanes;
	while (lane && lane->users)
		lane = lane->next;
	if (lane)
		lane->users++;
	pthread_mutex_unlock(&lanes_lock);
	return lane;
}

/*
 * Ends the caller's use of a lane. If no other thread uses the lane, and the lane has no work and
 * no staged block, removes the lane from the list and returns true. Checks these conditions only
 * after the wait for work, because a handler may use the lane during the wait. While this function
 * holds the list's lock, it only tries the lane's lock.
 */
static int unlink_unused(struct lane *lane)
{
	struct lane **link = &lanes;
	bool is_unused;

	wait_for_work(lane);
	pthread_mutex_lock(&lanes_lock);
	while (pthread_mutex_trylock(&lane->lock)) {
		pthread_mutex_unlock(&lanes_lock);
		wait_for_work(lane);
		pthread_mutex_lock(&lanes_lock);
	}
	is_unused = !--lane->users && !is_at_work(lane) && !lane->staged_bytes;
	pthread_mutex_unlock(&lane->lock);
	while (is_unused && *link != lane)
		link = &(*link)->next;
	if (is_unused)
		*link = lane->next;
	pthread_mutex_unlock(&lanes_lock);
	return is_unused;
}

void actmem_xla_trim_devices(void)
{
	struct lane *lane, *next;

	if (is_forked())
		return;
	pthread_mutex_lock(&one_trim);
	for (lane = next_unused(NULL); lane; lane = next) {
		next = next_unused(lane);
		if (unlink_unused(lane))
			end_lane(lane);
	}
	pthread_mutex_unlock(&one_trim);
}

int actmem_xla_transfer_stats(uint32_t device, struct actmem_xla_transfer_stats *stats)
{
	struct actmem_xla_transfer_stats now;
	struct lane *lane;
	unsigned int i;

	if (device >= ACTMEM_XLA_DEVICES_MAX)
		return -ERANGE;
	if (is_forked())
		return -EOWNERDEAD;
	ACTMEM_INIT(&now);
	for (i = sizeof(now.size) / sizeof(uint64_t); i < sizeof(now) / sizeof(uint64_t); i++)
		((uint64_t *)&now)[i] = __atomic_load_n((uint64_t *)&transfer_counts[device] + i,
							__ATOMIC_RELAXED);
	pthread_mutex_lock(&lanes_lock);
	for (lane = lanes; lane; lane = lane->next) {
		if (lane->device != device || lane->is_dead)
			continue;
		/* Do not wait for the lane's lock: its holder may be calling CUDA. */
		now.ring_bytes += lane->slot_bytes * SLOTS;
		now.unfinished += __atomic_load_n(&lane->unfinished, __ATOMIC_RELAXED);
		now.staged_bytes += __atomic_load_n(&lane->staged_bytes, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lanes_lock);
	return counts_copy(stats, stats->size, &now, sizeof(now));
}
