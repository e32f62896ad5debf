// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem pool: shows and sets how much zeroed memory the driver reserves on each node. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "facts.h"
#include "machine/machine.h"
#include "saved.h"
#include "settings.h"
#include "table.h"
#include "tool.h"

static const char help[] =
	"Shows the driver's pool on each node: the reserved bytes, the bytes that are zeroed\n"
	"and ready, the bytes that regions use, and all bytes of regions. With --nodes LIST\n"
	"SIZE, sets the sizes of pools, as root.\n"
	"\n"
	"  SIZE              size of each pool, a multiple of 2M, such as 64G; 0 frees the pool\n"
	"  -n, --nodes LIST  set the pools of these nodes, such as 0,2-3. Without SIZE: show only\n"
	"                    these nodes\n"
	"  -s, --save        also set the pools at the next boot, when the module is loaded.\n"
	"                    Without SIZE: save the current sizes\n"
	"  -J, --json        print JSON; sizes are bytes, null means unknown\n"
	"  -h, --help        print this\n"
	"\n"
	"Exit status 1 if a pool got less memory than SIZE.";

static bool pool_option(void *data, int option, const char *value)
{
	return settings_take(data, option, value);
}

/* {"node", "total_bytes", "free_bytes", "pool_bytes", "ready_bytes", ...} */
static json_t *node_to_row(const json_t *node)
{
	const json_t *pool = json_object_get(node, "pool");

	return json_pack("{s:O, s:O, s:O, s:O?, s:O?, s:O?, s:O}",
			 "node", json_object_get(node, "node"),
			 "total_bytes", json_object_get(node, "total_bytes"),
			 "free_bytes", json_object_get(node, "free_bytes"),
			 "pool_bytes", json_object_get(pool, "total_bytes"),
			 "ready_bytes", json_object_get(pool, "free_bytes"),
			 "lent_bytes", json_object_get(pool, "lent_bytes"),
			 "region_bytes", json_object_get(node, "region_bytes"));
}

static json_t *pools_to_json(const struct actmem_nodes *shown)
{
	json_t *nodes = facts_nodes(), *rows = json_array();
	const json_t *node;
	size_t i;

	json_array_foreach(nodes, i, node)
		if (node_is_set(shown, (unsigned int)json_integer_value(json_object_get(node, "node"))))
			rows = append_item(rows, node_to_row(node));
	json_decref(nodes);
	return json_pack("{s:o, s:o}", "memory", facts_memory(), "nodes", rows);
}

static int print_pools(const json_t *pools)
{
	static const struct column columns[] = {
		{ "NODE", "node", cell_text, COLUMN_RIGHT },
		{ "MEMORY", "total_bytes", cell_bytes, COLUMN_RIGHT },
		{ "FREE", "free_bytes", cell_bytes, COLUMN_RIGHT },
		{ "POOL", "pool_bytes", cell_bytes, COLUMN_RIGHT },
		{ "READY", "ready_bytes", cell_bytes, COLUMN_RIGHT },
		{ "LENT", "lent_bytes", cell_bytes, COLUMN_RIGHT },
		{ "REGIONS", "region_bytes", cell_bytes, COLUMN_RIGHT },
	};
	char *available = cell_bytes(json_object_get(pools, "memory"), "available_bytes", 0);
	int err = available ? 0 : -ENOMEM;

	if (!err)
		err = table_print(json_object_get(pools, "nodes"), columns,
				  sizeof(columns) / sizeof(columns[0]), 0);
	if (!err)
		printf("\nAvailable to everything else (MemAvailable): %s\n", available);
	free(available);
	return err;
}

static bool show_pools(const struct actmem_nodes *nodes, bool as_json)
{
	json_t *pools = pools_to_json(nodes);
	bool is_good = table_show(pools, as_json, print_pools);

	json_decref(pools);
	return is_good;
}

struct job {
	pthread_t thread;
	unsigned int node;
	uint64_t bytes;
	int err;
};

static void *set_pool(void *data)
{
	struct job *job = data;

	job->err = setting_write(NODE_POOL(job->node), job->bytes);
	return NULL;
}

/* Ordered from the best to the worst. */
enum outcome { POOL_SET, POOL_SHORT, POOL_REFUSED };

/* Returns the outcome. If the pool did not get the requested size, prints why. */
static enum outcome tell_pool(const struct job *job)
{
	uint64_t got;

	if (job->err == -ERANGE) {
		warnx("node %u has less memory than the %s requested (" DRIVER_SYSFS "/%s: %s)",
		      job->node, SETTING_TEXT(job->bytes), NODE_POOL(job->node), strerror(ERANGE));
		return POOL_REFUSED;
	}
	if (job->err && job->err != -EINTR) {
		setting_tell(NODE_POOL(job->node), job->err);
		return POOL_REFUSED;
	}
	if (!setting_to_save(NODE_POOL(job->node), NULL, &got))
		return POOL_REFUSED;
	if (got >= job->bytes)
		return POOL_SET;
	warnx("node %u: the pool has %s (%llu bytes) of %s (%llu bytes) requested: %s; run the command again",
	      job->node, SETTING_TEXT(got), (unsigned long long)got, SETTING_TEXT(job->bytes),
	      (unsigned long long)job->bytes,
	      job->err ? "it was interrupted" :
	      "no more 2M pages are free on the node. Free memory there, or use --save and restart the machine: at boot, memory is free and contiguous");
	return POOL_SHORT;
}

/* Sets all pools in parallel: a large pool takes minutes, because the driver zeroes its pages. */
static enum outcome set_pools(const struct actmem_nodes *nodes, uint64_t bytes)
{
	struct job *jobs = calloc(nodes_count(nodes), sizeof(*jobs)), *job = jobs, *end;
	enum outcome worst = POOL_SET;
	unsigned int node;

	if (!jobs) {
		warn("cannot set the pools");
		return POOL_REFUSED;
	}
	for_each_node(node, nodes) {
		*job = (struct job){ .node = node, .bytes = bytes };
		if (pthread_create(&job->thread, NULL, set_pool, job)) {
			set_pool(job);
			job->thread = 0;
		}
		job++;
	}
	end = job;
	for (job = jobs; job < end; job++) {
		enum outcome outcome;

		if (job->thread)
			pthread_join(job->thread, NULL);
		outcome = tell_pool(job);
		worst = outcome > worst ? outcome : worst;
	}
	free(jobs);
	return worst;
}

struct change {
	const struct actmem_nodes *nodes;
	const uint64_t *bytes;		/* NULL: the pools' current sizes */
};

static bool change_pools(struct saved *saved, const void *context)
{
	const struct change *change = context;
	unsigned int node;

	for_each_node(node, change->nodes)
		if (!setting_to_save(NODE_POOL(node), change->bytes, &saved->pools[node]))
			return false;
	return true;
}

int cmd_pool(int argc, char **argv)
{
	static const struct option options[] = {
		SETTINGS_OPTIONS,
		COMMON_OPTIONS
	};
	const struct option_table table = { SETTINGS_OPTIONS_SHORT, options, help, pool_option };
	struct settings_options given = { 0 };
	enum outcome outcome = POOL_SET;
	struct actmem_nodes nodes;
	uint64_t bytes = 0;
	bool is_good;
	int status;

	if (!take_options(&table, &given, argc, argv, &given.as_json, &status))
		return status;
	if (given.value && !setting_take(given.value, false, &bytes))
		return usage_hint();
	if (given.value && nodes_empty(&given.nodes)) {
		warnx("a size needs --nodes, such as --nodes 0");
		return usage_hint();
	}
	if (!settings_are_there(&given.nodes) || (given.is_saved && !saved_can_change(true)))
		return STATUS_FAILED;
	nodes = given.nodes;
	if (nodes_empty(&nodes))
		settings_nodes(&nodes);
	if (given.value)
		outcome = set_pools(&nodes, bytes);
	is_good = outcome == POOL_SET;
	/*
	 * Save the size even if the pool is smaller now: at boot, the pool can get all of its
	 * memory.
	 */
	if (given.is_saved && outcome != POOL_REFUSED)
		is_good = saved_change(change_pools, &(struct change){ &nodes, given.value ? &bytes : NULL }) &&
			  is_good;
	if (given.as_json || (!given.value && !given.is_saved))
		is_good = show_pools(&nodes, given.as_json) && is_good;
	return is_good ? STATUS_OK : STATUS_FAILED;
}
