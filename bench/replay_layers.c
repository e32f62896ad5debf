// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Sets up the tensors of each layer: a model's query, key and value, or a plan's. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include "pattern.h"
#include "replay.h"
#include "../tools/tool.h"

#define COMPUTE_MS	5

static bool is_possible(const struct replay *replay, const char *name, double bytes)
{
	if (bytes >= PATTERN_ALIGN && bytes <= (double)REPLAY_BYTES_MAX)
		return true;
	warnx("%s of %s is %.0f bytes long; make --tokens and --scale such that it is from %d to %llu",
	      name, replay->model.name, bytes, PATTERN_ALIGN, REPLAY_BYTES_MAX);
	return false;
}

/* Returns the bytes of a step, or 0 if the size of a tensor is impossible. */
static double lay_out_model(struct replay *replay)
{
	const struct replay_options *options = &replay->options;
	double bytes, sum = 0;
	unsigned int i;

	replay->tensors = MODEL_TENSORS;
	for (i = 0; i < MODEL_TENSORS; i++) {
		bytes = model_tensor_bytes(&replay->model, i, options->tokens) * options->scale;
		if (!is_possible(replay, model_tensors[i], bytes))
			return 0;
		snprintf(replay->tensor_names[i], sizeof(replay->tensor_names[i]), "%s",
			 model_tensors[i]);
		replay->bytes[i] = (uint64_t)bytes / PATTERN_ALIGN * PATTERN_ALIGN;
		sum += (double)replay->bytes[i];
	}
	return sum * replay->model.layers;
}

static double lay_out_plan(struct replay *replay)
{
	struct plan *plan = &replay->plan;
	double bytes, sum = 0;
	uint32_t i;

	replay->tensors = plan->devices;
	for (i = 0; i < plan->devices; i++)
		snprintf(replay->tensor_names[i], sizeof(replay->tensor_names[i]), "device %u", i);
	for (i = 0; i < plan->layer_count; i++) {
		if (!plan->layers[i].bytes)
			continue;
		bytes = (double)plan->layers[i].bytes * replay->options.scale;
		if (!is_possible(replay, "a layer", bytes))
			return 0;
		plan->layers[i].bytes = (uint64_t)bytes / PATTERN_ALIGN * PATTERN_ALIGN;
		if (plan->layers[i].bytes > replay->bytes[0])
			replay->bytes[0] = plan->layers[i].bytes;
		sum += (double)plan->layers[i].bytes * plan->devices;
	}
	return sum;
}

/* The budget option overrides the plan's budget, which is scaled like the plan's bytes. */
static bool take_plan(struct replay *replay)
{
	struct replay_options *options = &replay->options;

	if (!plan_read(options->plan_path, &replay->plan))
		return false;
	snprintf(replay->model.name, sizeof(replay->model.name), "%s", replay->plan.name);
	replay->model.layers = replay->plan.layer_count;
	if (!options->budget_bytes)
		options->budget_bytes = (uint64_t)((double)replay->plan.budget_bytes *
						   options->scale);
	return true;
}

int replay_lay_out(struct replay *replay)
{
	struct replay_options *options = &replay->options;
	double bytes;

	if (options->plan_path) {
		if (!take_plan(replay))
			return STATUS_FAILED;
		bytes = lay_out_plan(replay);
	} else {
		if (options->compute_ms < 0)
			options->compute_ms = COMPUTE_MS;
		if (!model_find(options->models_path, options->model, &replay->model))
			return STATUS_FAILED;
		bytes = lay_out_model(replay);
	}
	if (bytes > (double)REPLAY_BYTES_MAX)
		warnx("a step of %s is %.0f bytes long; make --tokens and --scale such that it is up to %llu",
		      replay->model.name, bytes, REPLAY_BYTES_MAX);
	if (!bytes || bytes > (double)REPLAY_BYTES_MAX)
		return STATUS_USAGE;
	replay->step_bytes = (uint64_t)bytes;
	replay->order = calloc(replay->model.layers, sizeof(*replay->order));
	replay->done = calloc(options->steps, sizeof(*replay->done));
	if (replay->order && replay->done)
		return STATUS_OK;
	warnx("no memory for %llu steps", (unsigned long long)options->steps);
	return STATUS_FAILED;
}
