/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Opens, describes and closes the runtimes of all kinds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/region.h"
#include "runtime/inside.h"

#define CHUNK_BYTES_MAX	(64ULL << 30)

int runtime_check(const struct actmem_runtime *runtime, const char *call)
{
	return runtime ? check_owner(runtime->am) : fail(EINVAL, "%s: no runtime", call);
}

bool runtime_is_of(const struct actmem_runtime *runtime, const struct actmem *am)
{
	return runtime->am == am;
}

int runtime_node(const struct actmem_runtime *runtime)
{
	return runtime->info.node;
}

uint64_t runtime_chunk_bytes(const struct actmem_runtime *runtime)
{
	return runtime->options.chunk_bytes;
}

int runtime_check_registers(struct actmem_runtime *runtime)
{
	char words[ERROR_TEXT_MAX];

	pthread_mutex_lock(&runtime->lock);
	memcpy(words, runtime->refusal, sizeof(words));
	pthread_mutex_unlock(&runtime->lock);
	return *words ? fail(EOPNOTSUPP, "%s; actmem does not try to register memory again", words) : 0;
}

void runtime_add_heap(struct actmem_runtime *runtime)
{
	pthread_mutex_lock(&runtime->lock);
	runtime->heaps++;
	pthread_mutex_unlock(&runtime->lock);
}

void runtime_drop_heap(struct actmem_runtime *runtime)
{
	pthread_mutex_lock(&runtime->lock);
	runtime->heaps--;
	pthread_mutex_unlock(&runtime->lock);
}

static int check_options(struct actmem_runtime_options *options)
{
	if (options->kind > ACTMEM_RUNTIME_NULL)
		return fail(EINVAL, "runtime %u is unknown", options->kind);
	if (options->device < 0)
		return fail(EINVAL, "device is %d, but must be at least 0", options->device);
	if (!options->chunk_bytes)
		options->chunk_bytes = CHUNK_BYTES_MAX;
	if (options->chunk_bytes % HUGE_PAGE_BYTES || options->chunk_bytes > CHUNK_BYTES_MAX)
		return fail(EINVAL, "chunk_bytes is %llu, but must be a multiple of 2 MiB up to 64 GiB",
			    (unsigned long long)options->chunk_bytes);
	return 0;
}

static void describe_runtime(struct actmem_runtime *runtime, const char *why)
{
	const struct actmem_runtime_info *info = &runtime->info;
	char place[32] = "";

	if (info->node >= 0)
		snprintf(place, sizeof(place), " at node %d", info->node);
	snprintf(runtime->description, sizeof(runtime->description), "%s: %s%s, %s",
		 runtime->kind->name, info->text, place, why);
}

/* Returns true if the error means that there is no accelerator. */
static bool is_absent(int error)
{
	return error == -ENOENT || error == -ENODEV;
}

static int open_kind(struct actmem_runtime *runtime)
{
	static const struct runtime_kind *const kinds[] = {
		[ACTMEM_RUNTIME_CUDA] = &runtime_cuda,
		[ACTMEM_RUNTIME_NULL] = &runtime_null,
	};
	enum actmem_runtime_kind wanted = runtime->options.kind;
	int error;

	runtime->kind = wanted ? kinds[wanted] : &runtime_cuda;
	error = runtime->kind->open(runtime);
	if (!error)
		describe_runtime(runtime, wanted ? "as requested" : "because it is available");
	/*
	 * Fall back only for device 0, the default. A caller that chose another device needs that
	 * device.
	 */
	if (!error || wanted || !is_absent(error) || runtime->options.device)
		return error;
	snprintf(runtime->description, sizeof(runtime->description), "null: %s", actmem_error());
	runtime->kind = &runtime_null;
	return runtime->kind->open(runtime);
}

int actmem_runtime_open(struct actmem *am, const struct actmem_runtime_options *options,
			struct actmem_runtime **result)
{
	struct actmem_runtime *runtime;
	int error = 0;

	if (!am || !result)
		return fail(EINVAL, "actmem_runtime_open: am or runtime is NULL");
	error = check_owner(am);
	if (error)
		return error;
	runtime = calloc(1, sizeof(*runtime));
	if (!runtime)
		return fail(ENOMEM, "no memory for a runtime");
	if (options)
		error = take_struct(&runtime->options, sizeof(runtime->options), options,
				    "runtime options");
	if (!error)
		error = check_options(&runtime->options);
	if (!error)
		error = open_kind(runtime);
	if (error) {
		free(runtime);
		return error;
	}
	runtime->am = am;
	if (runtime->info.node >= 0)
		nodes_of_socket((unsigned int)runtime->info.node, &runtime->nodes);
	runtime->info.kind = runtime->kind->kind;
	runtime->info.chunk_bytes = runtime->options.chunk_bytes;
	runtime->piece_bytes = PIECE_LEAST;
	runtime->accepted_bytes = runtime->options.chunk_bytes;
	link_init(&runtime->registrations);
	pthread_mutex_init(&runtime->lock, NULL);
	handles_lock();
	am->runtimes++;
	handles_unlock();
	fail_clear();
	*result = runtime;
	return 0;
}

int actmem_runtime_close(struct actmem_runtime *runtime)
{
	int error = runtime_check(runtime, "actmem_runtime_close");

	if (error)
		return error;
	registration_end_abandoned(runtime);
	pthread_mutex_lock(&runtime->lock);
	if (!link_is_alone(&runtime->registrations) || runtime->heaps)
		error = fail(EBUSY, "%llu regions and %u heaps are registered with the runtime; unregister the regions with actmem_region_unregister(), and destroy the heaps",
			     (unsigned long long)runtime->info.regions, runtime->heaps);
	pthread_mutex_unlock(&runtime->lock);
	if (error)
		return error;
	handles_lock();
	runtime->am->runtimes--;
	handles_unlock();
	pthread_mutex_destroy(&runtime->lock);
	free(runtime);
	return 0;
}

const char *actmem_runtime_describe(const struct actmem_runtime *runtime)
{
	return runtime ? runtime->description : "no runtime";
}

int actmem_runtime_get_info(struct actmem_runtime *runtime, struct actmem_runtime_info *info)
{
	struct actmem_runtime_info now;
	int error = runtime_check(runtime, "actmem_runtime_get_info");

	if (error)
		return error;
	if (!info)
		return fail(EINVAL, "actmem_runtime_get_info: info is NULL");
	pthread_mutex_lock(&runtime->lock);
	now = runtime->info;
	pthread_mutex_unlock(&runtime->lock);
	return give_struct(info, &now, sizeof(now), "runtime info");
}

int actmem_runtime_nodes(struct actmem_runtime *runtime, struct actmem_nodes *nodes)
{
	int error = runtime_check(runtime, "actmem_runtime_nodes");
	struct actmem_nodes allowed;
	unsigned int node;

	if (error)
		return error;
	if (!nodes)
		return fail(EINVAL, "actmem_runtime_nodes: nodes is NULL");
	memset(nodes, 0, sizeof(*nodes));
	nodes_allowed(&allowed);
	for_each_node(node, &runtime->nodes)
		if (node_is_set(&allowed, node))
			node_set(nodes, node);
	/* On a node that the task may not use, a call that creates a region returns the reason. */
	if (nodes_empty(nodes) && runtime->info.node >= 0)
		node_set(nodes, (unsigned int)runtime->info.node);
	return 0;
}
