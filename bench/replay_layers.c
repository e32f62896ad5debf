// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Sets up the tensors of each layer: query, key and value of a model, or one tensor for each device
 * of a plan.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pattern.h"
#include "replay.h"
#include "../tools/tool.h"

#define BFLOAT16_BYTES	2
#define COMPUTE_MS	5

/* Dimensions of language models, as their makers publish them. */
static const struct model {
	const char *name;
	uint32_t layers, q_heads, kv_heads, head_dim;
} models[] = {
	{ "llama-3.3-70b", 80, 64, 8, 128 },
	{ "llama-2-13b", 40, 40, 40, 128 },
	{ "gemma-2-27b", 46, 32, 16, 128 },
	{ "gemma-3-27b", 62, 32, 16, 128 },
};

static const struct model *find_model(const char *name)
{
	char names[256] = "";
	size_t i;

	for (i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		if (!strcmp(models[i].name, name))
			return &models[i];
		strcat(strcat(names, i ? ", " : ""), models[i].name);
	}
	warnx("--model is '%s', but must be one of %s", name, names);
	return NULL;
}

static bool is_possible(const struct replay *replay, const char *tensor, double bytes)
{
	if (bytes >= PATTERN_ALIGN && bytes <= (double)REPLAY_BYTES_MAX)
		return true;
	warnx("%s of %s has %.0f bytes, but must have %d to %llu: change --tokens or --scale", tensor,
	      replay->name, bytes, PATTERN_ALIGN, REPLAY_BYTES_MAX);
	return false;
}

/* Returns the size of a step in bytes, or 0 if the size of a tensor is impossible. */
static double lay_out_model(struct replay *replay, const struct model *model)
{
	static const char *const names[MODEL_TENSORS] = { "Q", "K", "V" };
	const struct replay_options *options = &replay->options;
	double bytes, sum = 0;
	unsigned int i;

	replay->name = model->name;
	replay->layer_count = model->layers;
	replay->tensors = MODEL_TENSORS;
	for (i = 0; i < MODEL_TENSORS; i++) {
		bytes = (double)options->tokens * (i ? model->kv_heads : model->q_heads) *
			model->head_dim * BFLOAT16_BYTES * options->scale;
		if (!is_possible(replay, names[i], bytes))
			return 0;
		strcpy(replay->tensor_names[i], names[i]);
		replay->bytes[i] = (uint64_t)bytes / PATTERN_ALIGN * PATTERN_ALIGN;
		sum += (double)replay->bytes[i];
	}
	return sum * model->layers;
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

/* Reads the plan. Without --budget, uses the plan's budget, multiplied by --scale. */
static bool read_plan(struct replay *replay)
{
	struct replay_options *options = &replay->options;

	if (!plan_read(options->plan_path, &replay->plan))
		return false;
	replay->name = replay->plan.name;
	replay->layer_count = replay->plan.layer_count;
	if (!options->budget_bytes)
		options->budget_bytes = (uint64_t)((double)replay->plan.budget_bytes *
						   options->scale);
	return true;
}

int replay_lay_out(struct replay *replay)
{
	struct replay_options *options = &replay->options;
	const struct model *model;
	double bytes;

	if (options->plan_path) {
		if (!read_plan(replay))
			return STATUS_FAILED;
		bytes = lay_out_plan(replay);
	} else {
		if (options->compute_ms < 0)
			options->compute_ms = COMPUTE_MS;
		model = find_model(options->model);
		if (!model)
			return STATUS_USAGE;
		bytes = lay_out_model(replay, model);
	}
	if (bytes > (double)REPLAY_BYTES_MAX)
		warnx("a step of %s has %.0f bytes, but must have at most %llu: lower --tokens or --scale",
		      replay->name, bytes, REPLAY_BYTES_MAX);
	if (!bytes || bytes > (double)REPLAY_BYTES_MAX)
		return STATUS_USAGE;
	replay->step_bytes = (uint64_t)bytes;
	replay->done = calloc(options->steps, sizeof(*replay->done));
	if (replay->done)
		return STATUS_OK;
	warnx("no memory for %llu steps", (unsigned long long)options->steps);
	return STATUS_FAILED;
}
