// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reads the layers of a plan for actmem replay: the compute times of each layer, and the bytes that
 * the layer sends to the host.
 */
#include <err.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "replay.h"

#define PLAN_FORMAT	1
#define LAYERS_MAX	65536
#define SECONDS_MAX	1e6

static bool read_ns(double seconds, uint64_t *ns)
{
	if (!(seconds >= 0 && seconds <= SECONDS_MAX))
		return false;
	*ns = (uint64_t)(seconds * NS_PER_SECOND);
	return true;
}

static bool read_layers(const json_t *rows, struct plan *plan)
{
	double forward, backward;
	json_int_t bytes;
	size_t i;

	plan->layer_count = (uint32_t)json_array_size(rows);
	plan->layers = calloc(plan->layer_count, sizeof(*plan->layers));
	for (i = 0; plan->layers && i < plan->layer_count; i++) {
		if (json_unpack(json_array_get(rows, i), "[F, F, I]", &forward, &backward, &bytes) ||
		    !read_ns(forward, &plan->layers[i].forward_ns) ||
		    !read_ns(backward, &plan->layers[i].backward_ns) || bytes < 0)
			return false;
		plan->layers[i].bytes = (uint64_t)bytes;
	}
	return plan->layers;
}

static bool sends_anything(const struct plan *plan)
{
	uint32_t i;

	for (i = 0; i < plan->layer_count; i++) {
		if (plan->layers[i].bytes)
			return true;
	}
	return false;
}

/*
 * Parses the values of a plan. If the plan uses files, the budget is the host memory that the plan
 * uses for one device, times the number of devices. Returns NULL, or the reason why the plan cannot
 * be used.
 */
static const char *parse_plan(json_t *root, struct plan *plan)
{
	json_int_t host_bytes, disk_bytes;
	int format, devices, microbatches = 1;
	const char *name;
	double seconds;
	json_t *rows;

	if (json_unpack(root, "{s:i}", "format", &format) || format != PLAN_FORMAT)
		return "is not a plan of this version of actmem; make it again with actmem plan --save";
	if (json_unpack(root, "{s:s, s:F, s:I, s:I, s:i, s:o, s?:i}", "model", &name, "step_s",
			&seconds, "host_bytes", &host_bytes, "disk_bytes", &disk_bytes, "devices",
			&devices, "layers", &rows, "microbatches", &microbatches) ||
	    host_bytes < 0 || disk_bytes < 0 || !read_ns(seconds, &plan->step_ns))
		return "is not a plan: a figure is missing or has a wrong type";
	if (devices < 1 || devices > REPLAY_TENSORS_MAX)
		return "is a plan for less than 1 or more than 64 devices on a host";
	if (microbatches != 1)
		return "is a plan with microbatches; replay supports one microbatch";
	if (!json_array_size(rows) || json_array_size(rows) > LAYERS_MAX || !read_layers(rows, plan))
		return "is not a plan: a layer has no seconds or bytes";
	if (!host_bytes || !sends_anything(plan))
		return "offloads nothing, so there is no traffic";
	plan->devices = (uint32_t)devices;
	plan->budget_bytes = disk_bytes ? (uint64_t)host_bytes * plan->devices : 0;
	snprintf(plan->name, sizeof(plan->name), "%s", name);
	return NULL;
}

bool plan_read(const char *path, struct plan *plan)
{
	const char *wrong;
	json_error_t error;
	json_t *root = json_load_file(path, 0, &error);

	if (!root) {
		warnx("cannot read the plan '%s': %s", path, error.text);
		return false;
	}
	wrong = parse_plan(root, plan);
	json_decref(root);
	if (!wrong)
		return true;
	warnx("'%s' %s", path, wrong);
	plan_free(plan);
	return false;
}

void plan_free(struct plan *plan)
{
	free(plan->layers);
	plan->layers = NULL;
}
