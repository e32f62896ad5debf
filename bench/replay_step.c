// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Runs the traffic of a training step. In the forward pass, a layer first produces its tensors and
 * then computes. In the backward pass, it first consumes them.
 *
 * A layer computes by sleeping, so that all processors are free to move data. Filling and verifying
 * tensors is part of its compute time: the layer sleeps for the rest. The next layer begins when
 * this one should have ended, so that late wake-ups do not add up.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/base.h"
#include "pattern.h"
#include "progress.h"
#include "replay.h"

#define TOLD_FAULTS_MAX	10
#define WHERE_MAX	64
/* A signal that arrives just before a sleep is noticed this late. */
#define SLEEP_MOST_NS	(20 * NS_PER_MS)

struct pass {
	struct replay *replay;
	struct replay_step *step;
	bool is_forward;
	uint32_t layer;
	uint64_t begun_ns;		/* when the layer should have begun */
	uint64_t stall_ns;		/* of the layer */
	uint64_t pattern_ns;
};

static struct actmem_key key_of(uint32_t layer, unsigned int tensor)
{
	return (struct actmem_key){ .name = replay_name(layer, tensor) };
}

static int tell_error(const struct pass *pass, unsigned int tensor, int error)
{
	char where[WHERE_MAX];

	progress_end();
	snprintf(where, sizeof(where), "step %" PRIu64 ", layer %u, %s",
		 pass->replay->done_count, pass->layer, pass->replay->tensor_names[tensor]);
	replay_tell_error(where);
	return error;
}

/* Adds the time of a call of the store. */
static void add_stall(struct pass *pass, const char *call, unsigned int tensor, uint64_t begin_ns,
		      uint64_t end_ns)
{
	char name[40];

	pass->stall_ns += end_ns - begin_ns;
	if (pass->is_forward)
		pass->step->put_stall_ns += end_ns - begin_ns;
	else
		pass->step->take_stall_ns += end_ns - begin_ns;
	snprintf(name, sizeof(name), "%s %s", call, pass->replay->tensor_names[tensor]);
	timeline_slice(pass->replay->timeline, REPLAY_LANE_LAYERS + pass->layer, name, begin_ns,
		       end_ns, NULL);
}

static void add_pattern(struct pass *pass, const char *call, unsigned int tensor,
			uint64_t begin_ns, uint64_t end_ns)
{
	char name[40];

	pass->pattern_ns += end_ns - begin_ns;
	snprintf(name, sizeof(name), "%s %s", call, pass->replay->tensor_names[tensor]);
	timeline_slice(pass->replay->timeline, REPLAY_LANE_LAYERS + pass->layer, name, begin_ns,
		       end_ns, NULL);
}

static int produce_tensor(struct pass *pass, unsigned int tensor)
{
	struct replay *replay = pass->replay;
	struct actmem_key key = key_of(pass->layer, tensor);
	uint64_t bytes = replay_bytes(replay, pass->layer, tensor);
	uint64_t begun_ns, reserved_ns, filled_ns, committed_ns;
	void *memory;
	int error;

	if (!bytes)
		return 0;

	begun_ns = clock_ns();
	error = actmem_store_reserve(replay->store, key, bytes, &memory, ACTMEM_WAIT_FOREVER);
	if (error)
		return tell_error(pass, tensor, error);
	reserved_ns = clock_ns();
	pattern_fill(memory, bytes, pattern_seed(replay->done_count, key.name));
	filled_ns = clock_ns();
	error = actmem_store_commit(replay->store, key);
	if (error)
		return tell_error(pass, tensor, error);
	committed_ns = clock_ns();
	add_stall(pass, "reserve", tensor, begun_ns, reserved_ns);
	add_pattern(pass, "fill", tensor, reserved_ns, filled_ns);
	add_stall(pass, "commit", tensor, filled_ns, committed_ns);
	return 0;
}

static void tell_fault(const struct pass *pass, unsigned int tensor,
		       const struct pattern_fault *fault)
{
	progress_end();
	if (++pass->replay->wrong_blocks <= TOLD_FAULTS_MAX)
		warnx("step %" PRIu64 ", layer %u, %s: byte %" PRIu64
		      " is %02x instead of %02x; %" PRIu64 " of %" PRIu64 " bytes are wrong",
		      pass->replay->done_count, pass->layer, pass->replay->tensor_names[tensor],
		      fault->offset, fault->found, fault->wanted, fault->wrong_bytes,
		      replay_bytes(pass->replay, pass->layer, tensor));
	else if (pass->replay->wrong_blocks == TOLD_FAULTS_MAX + 1)
		warnx("more blocks came back wrong");
	pass->replay->wrong_bytes += fault->wrong_bytes;
}

static int consume_tensor(struct pass *pass, unsigned int tensor)
{
	struct replay *replay = pass->replay;
	struct actmem_key key = key_of(pass->layer, tensor);
	uint64_t wanted = replay_bytes(replay, pass->layer, tensor);
	uint64_t begun_ns, held_ns, verified_ns, released_ns, bytes;
	struct pattern_fault fault;
	const void *memory;
	int error;

	if (!wanted)
		return 0;

	begun_ns = clock_ns();
	error = actmem_store_hold(replay->store, key, &memory, &bytes, ACTMEM_WAIT_FOREVER);
	if (error)
		return tell_error(pass, tensor, error);
	held_ns = clock_ns();
	if (bytes != wanted)
		warnx("step %" PRIu64 ", layer %u, %s: has %" PRIu64 " bytes instead of %" PRIu64,
		      replay->done_count, pass->layer, replay->tensor_names[tensor], bytes, wanted);
	if (bytes != wanted)
		replay->wrong_blocks++;
	else if (!pattern_verify(memory, bytes, pattern_seed(replay->done_count, key.name), &fault))
		tell_fault(pass, tensor, &fault);
	verified_ns = clock_ns();
	error = actmem_store_release(replay->store, key);
	if (error)
		return tell_error(pass, tensor, error);
	released_ns = clock_ns();
	add_stall(pass, "hold", tensor, begun_ns, held_ns);
	add_pattern(pass, "verify", tensor, held_ns, verified_ns);
	add_stall(pass, "release", tensor, verified_ns, released_ns);
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
	pass->step->pattern_ns += pass->pattern_ns;
	if (pass->pattern_ns > compute_ns)
		pass->step->overrun_ns += pass->pattern_ns - compute_ns;
	pass->begun_ns = end_ns;
	return replay_signal ? -EINTR : 0;
}

/* Returns the compute time of a layer. A plan has its own for each, which the option overrides. */
static uint64_t compute_ns_of(const struct pass *pass)
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
	uint64_t begun_ns = clock_ns();
	unsigned int i;
	int error = 0;

	progress_tell("step %" PRIu64 " of %" PRIu64 ": %s, layer %u", replay->done_count,
		      replay->options.steps, pass->is_forward ? "forward" : "backward", layer);
	pass->layer = layer;
	pass->stall_ns = 0;
	pass->pattern_ns = 0;
	for (i = 0; !error && !replay_signal && i < replay->tensors; i++)
		error = pass->is_forward ? produce_tensor(pass, i)
					 : consume_tensor(pass, replay->tensors - 1 - i);
	if (!error)
		error = compute_layer(pass, compute_ns_of(pass));
	timeline_slice(replay->timeline, REPLAY_LANE_LAYERS + layer,
		       pass->is_forward ? "forward" : "backward", begun_ns, clock_ns(),
		       json_pack("{s:I}", "step", (json_int_t)replay->done_count));
	replay_trace_count(replay);
	return error;
}

static int run_passes(struct pass *pass)
{
	struct replay *replay = pass->replay;
	uint64_t begun_ns = clock_ns(), turned_ns, ended_ns;
	uint32_t layers = replay->model.layers, i;
	int error = 0;

	pass->begun_ns = begun_ns;
	pass->is_forward = true;
	for (i = 0; !error && i < layers; i++)
		error = run_layer(pass, i);
	turned_ns = clock_ns();
	pass->is_forward = false;
	for (i = 0; !error && i < layers; i++)
		error = run_layer(pass, replay->order[i]);
	ended_ns = clock_ns();
	pass->step->forward_ns = turned_ns - begun_ns;
	pass->step->ns = ended_ns - begun_ns;
	timeline_slice(replay->timeline, REPLAY_LANE_STEPS, "step", begun_ns, ended_ns,
		       json_pack("{s:I}", "step", (json_int_t)replay->done_count));
	timeline_slice(replay->timeline, REPLAY_LANE_STEPS, "forward", begun_ns, turned_ns, NULL);
	timeline_slice(replay->timeline, REPLAY_LANE_STEPS, "backward", turned_ns, ended_ns, NULL);
	return error;
}

/* Drops the blocks that a step left in the store because it ended early. */
static void drop_blocks(struct replay *replay)
{
	uint32_t layer;
	unsigned int i;

	for (layer = 0; layer < replay->model.layers; layer++)
		for (i = 0; i < replay->tensors; i++)
			/* -ENOENT: the block was taken, or was never put. */
			actmem_store_drop(replay->store, key_of(layer, i));
}

#define RISE(field)	(step->stats.field -= before.field)

static int take_stats(struct replay *replay, struct actmem_store_stats *stats)
{
	ACTMEM_INIT(stats);
	if (!actmem_store_get_stats(replay->store, stats))
		return 0;
	warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
	return -EIO;
}

int replay_step(struct replay *replay)
{
	const struct replay_options *options = &replay->options;
	struct replay_step *step = &replay->done[replay->done_count];
	bool changes = options->change_order_at && replay->done_count >= options->change_order_at;
	struct pass pass = { .replay = replay, .step = step };
	struct actmem_store_stats before;
	int error;

	order_make(changes ? ORDER_RANDOM : (enum order)options->order, options->seed + changes,
		   replay->done_count, replay->order, replay->model.layers);
	error = take_stats(replay, &before);
	if (!error)
		error = run_passes(&pass);
	if (error)
		drop_blocks(replay);
	replay_trace_drain(replay);
	if (!error)
		error = take_stats(replay, &step->stats);
	if (error)
		return error;
	if (step->stats.blocks) {
		warnx("%" PRIu64 " blocks are left in the store", step->stats.blocks);
		return -EIO;
	}
	RISE(hits_total);
	RISE(handed_over_total);
	RISE(late_total);
	RISE(misses_total);
	RISE(put_stall_ns_total);
	RISE(take_stall_ns_total);
	RISE(spilled_bytes_total);
	RISE(filled_bytes_total);
	RISE(wasted_bytes_total);
	return 0;
}
