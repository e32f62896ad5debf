// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Runs one step of actmem replay: the traffic of a training step, with a store. In the forward
 * pass, a layer first produces its tensors and then computes. In the backward pass, a layer first
 * consumes its tensors and then computes.
 *
 * A layer computes by sleeping, so that all processors are free to move data. Filling and verifying
 * tensors is part of its compute time: the layer sleeps for the rest of that time. The time of the
 * next layer counts from the planned end of the layer before it, so that late wake-ups do not add
 * up.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include "base/base.h"
#include "pattern.h"
#include "replay.h"
#include "../tools/tool.h"

#define FAULTS_PRINTED_MAX	10
/*
 * Limits each sleep, because a signal that arrives just before a sleep is noticed only after the
 * sleep.
 */
#define SLEEP_MOST_NS	(20 * NS_PER_MS)

struct pass {
	struct replay *replay;
	struct replay_step *step;
	bool is_forward;
	uint32_t layer;
	uint64_t begun_ns;		/* when the layer should have begun */
	uint64_t stall_ns;		/* time of the layer in calls of the store */
	uint64_t pattern_ns;		/* time in which the layer fills and verifies tensors */
};

static struct actmem_key make_key(uint32_t layer, unsigned int tensor)
{
	return (struct actmem_key){ .name = (uint64_t)layer * REPLAY_TENSORS_MAX + tensor };
}

static int fail_in_step(const struct pass *pass, unsigned int tensor, int error)
{
	warnx("step %" PRIu64 ", layer %u, %s: %s", pass->replay->done_count, pass->layer,
	      pass->replay->tensor_names[tensor], actmem_error_in(ACTMEM_NAMES_REPLAY));
	return error;
}

/* Adds the time since *@since_ns to *@sum_ns, and sets *@since_ns to the present time. */
static void add_time(uint64_t *sum_ns, uint64_t *since_ns)
{
	uint64_t now_ns = clock_ns();

	*sum_ns += now_ns - *since_ns;
	*since_ns = now_ns;
}

static int produce_tensor(struct pass *pass, unsigned int tensor)
{
	struct replay *replay = pass->replay;
	struct actmem_key key = make_key(pass->layer, tensor);
	uint64_t bytes = replay_bytes(replay, pass->layer, tensor), since_ns = clock_ns();
	void *memory;
	int error;

	if (!bytes)
		return 0;

	error = actmem_store_reserve(replay->store, key, bytes, &memory, ACTMEM_WAIT_FOREVER);
	if (error)
		return fail_in_step(pass, tensor, error);
	add_time(&pass->stall_ns, &since_ns);
	pattern_fill(memory, bytes, pattern_seed(replay->done_count, key.name));
	add_time(&pass->pattern_ns, &since_ns);
	error = actmem_store_commit(replay->store, key);
	if (error)
		return fail_in_step(pass, tensor, error);
	add_time(&pass->stall_ns, &since_ns);
	return 0;
}

static void print_fault(const struct pass *pass, unsigned int tensor,
		       const struct pattern_fault *fault)
{
	if (++pass->replay->wrong_blocks <= FAULTS_PRINTED_MAX)
		warnx("step %" PRIu64 ", layer %u, %s: byte %" PRIu64
		      " is %02x instead of %02x; %" PRIu64 " of %" PRIu64 " bytes are wrong",
		      pass->replay->done_count, pass->layer, pass->replay->tensor_names[tensor],
		      fault->offset, fault->found, fault->wanted, fault->wrong_bytes,
		      replay_bytes(pass->replay, pass->layer, tensor));
	else if (pass->replay->wrong_blocks == FAULTS_PRINTED_MAX + 1)
		warnx("more blocks came back wrong");
	pass->replay->wrong_bytes += fault->wrong_bytes;
}

static int consume_tensor(struct pass *pass, unsigned int tensor)
{
	struct replay *replay = pass->replay;
	struct actmem_key key = make_key(pass->layer, tensor);
	uint64_t wanted = replay_bytes(replay, pass->layer, tensor), since_ns = clock_ns(), bytes;
	struct pattern_fault fault;
	const void *memory;
	int error;

	if (!wanted)
		return 0;

	error = actmem_store_hold(replay->store, key, &memory, &bytes, ACTMEM_WAIT_FOREVER);
	if (error)
		return fail_in_step(pass, tensor, error);
	add_time(&pass->stall_ns, &since_ns);
	if (bytes != wanted)
		warnx("step %" PRIu64 ", layer %u, %s: has %" PRIu64 " bytes instead of %" PRIu64,
		      replay->done_count, pass->layer, replay->tensor_names[tensor], bytes, wanted);
	if (bytes != wanted)
		replay->wrong_blocks++;
	else if (!pattern_verify(memory, bytes, pattern_seed(replay->done_count, key.name), &fault))
		print_fault(pass, tensor, &fault);
	add_time(&pass->pattern_ns, &since_ns);
	error = actmem_store_release(replay->store, key);
	if (error)
		return fail_in_step(pass, tensor, error);
	add_time(&pass->stall_ns, &since_ns);
	return 0;
}

/* Sleeps for the rest of the layer's time. Returns -EINTR after a signal. */
static int compute_layer(struct pass *pass, uint64_t compute_ns)
{
	uint64_t end_ns = pass->begun_ns + pass->stall_ns, now_ns, until_ns;
	struct timespec until;

	end_ns += compute_ns > pass->pattern_ns ? compute_ns : pass->pattern_ns;
	while (!replay_signal && (now_ns = clock_ns()) < end_ns) {
		until_ns = end_ns - now_ns < SLEEP_MOST_NS ? end_ns : now_ns + SLEEP_MOST_NS;
		until = clock_time(until_ns);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
	pass->step->compute_ns += compute_ns;
	pass->step->stall_ns += pass->stall_ns;
	if (pass->pattern_ns > compute_ns)
		pass->step->overrun_ns += pass->pattern_ns - compute_ns;
	pass->begun_ns = end_ns;
	return replay_signal ? -EINTR : 0;
}

/* Returns the layer's compute time in this pass, from the option or else from the plan. */
static uint64_t layer_compute_ns(const struct pass *pass)
{
	const struct replay *replay = pass->replay;
	const struct plan_layer *layer = replay->plan.layers + pass->layer;

	if (replay->options.compute_ms >= 0)
		return (uint64_t)(replay->options.compute_ms * NS_PER_MS);
	return pass->is_forward ? layer->forward_ns : layer->backward_ns;
}

static int run_layer(struct pass *pass, uint32_t layer)
{
	struct replay *replay = pass->replay;
	unsigned int i;
	int error = 0;

	pass->layer = layer;
	pass->stall_ns = 0;
	pass->pattern_ns = 0;
	for (i = 0; !error && !replay_signal && i < replay->tensors; i++)
		error = pass->is_forward ? produce_tensor(pass, i)
					 : consume_tensor(pass, replay->tensors - 1 - i);
	return error ? error : compute_layer(pass, layer_compute_ns(pass));
}

static int run_passes(struct pass *pass)
{
	uint64_t begun_ns = clock_ns();
	uint32_t count = pass->replay->layer_count, i;
	int error = 0;

	pass->begun_ns = begun_ns;
	pass->is_forward = true;
	for (i = 0; !error && i < count; i++)
		error = run_layer(pass, i);
	pass->is_forward = false;
	for (i = 0; !error && i < count; i++)
		error = run_layer(pass, count - 1 - i);
	pass->step->ns = clock_ns() - begun_ns;
	return error;
}

/* Drops the blocks that a step left in the store because it ended early. */
static void drop_blocks(struct replay *replay)
{
	uint32_t layer;
	unsigned int i;

	for (layer = 0; layer < replay->layer_count; layer++)
		for (i = 0; i < replay->tensors; i++)
			/* Returns -ENOENT if the block was taken, or was never put. */
			actmem_store_drop(replay->store, make_key(layer, i));
}

#define SUBTRACT(field)	(step->stats.field -= before.field)

static int read_stats(struct replay *replay, struct actmem_store_stats *stats)
{
	ACTMEM_INIT(stats);
	if (!actmem_store_get_stats(replay->store, stats))
		return 0;
	print_library_error();
	return -EIO;
}

int replay_step(struct replay *replay)
{
	struct replay_step *step = &replay->done[replay->done_count];
	struct pass pass = { .replay = replay, .step = step };
	struct actmem_store_stats before;
	int error = read_stats(replay, &before);

	if (!error)
		error = run_passes(&pass);
	if (error)
		drop_blocks(replay);
	else
		error = read_stats(replay, &step->stats);
	if (error)
		return error;
	if (step->stats.blocks) {
		warnx("%" PRIu64 " blocks are left in the store", step->stats.blocks);
		return -EIO;
	}
	SUBTRACT(hits_total);
	SUBTRACT(late_total);
	SUBTRACT(misses_total);
	SUBTRACT(spilled_bytes_total);
	SUBTRACT(filled_bytes_total);
	return 0;
}
