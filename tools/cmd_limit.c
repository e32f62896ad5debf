// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem limit: shows and sets the limits of the driver's memory. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
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
	"Shows the limits on the driver's memory: for each user, each node, each mounted file\n"
	"system and, if the kernel supports it, the cgroup of this process. A limit is a\n"
	"multiple of 2M such as 64G, or max for no limit. Only root can set a limit.\n"
	"\n"
	"  -u, --user LIMIT  set the limit on all regions of each user; with max, RLIMIT_MEMLOCK\n"
	"                    of the process that creates a region applies\n"
	"  -n, --nodes LIST  set the limit on all regions on each of these nodes, such as 0,2-3,\n"
	"                    to LIMIT\n"
	"  -s, --save        also set the limit at the next boot, when the module is loaded.\n"
	"                    Without LIMIT: save the current limits\n"
	"  -J, --json        print JSON; sizes are bytes, null means no limit or unknown\n"
	"  -h, --help        print this";

struct limit {
	struct settings_options given;
	const char *user;
	uint64_t user_bytes, node_bytes;
};

static bool limit_option(void *data, int option, const char *value)
{
	struct limit *limit = data;

	if (option != 'u')
		return settings_take(&limit->given, option, value);
	limit->user = value;
	return setting_take(value, true, &limit->user_bytes);
}

/*
 * Returns the tightest dmem limit on this process for each node, or null if the kernel has no such
 * limits.
 */
static json_t *cgroup_limits(const struct actmem_nodes *nodes)
{
	json_t *rows = json_array(), *driver = facts_driver();
	bool has_them = json_is_true(json_object_get(driver, "cgroup_limits"));
	struct cgroup_limit limit;
	unsigned int node;
	char region[32];

	json_decref(driver);
	if (!has_them) {
		json_decref(rows);
		return json_null();
	}
	for_each_node(node, nodes) {
		snprintf(region, sizeof(region), "actmem/node%u", node);
		if (dmem_limit_read(&limit, region, "/proc/self/cgroup", "/proc/self/mounts"))
			rows = append_item(rows, json_pack(
				"{s:i, s:s, s:o, s:o}", "node", (int)node, "file", limit.file,
				"limit_bytes", limit_to_json(limit.limit_bytes),
				"used_bytes", limit_to_json(limit.used_bytes)));
	}
	return rows;
}

static json_t *node_limits(const struct actmem_nodes *nodes)
{
	json_t *rows = json_array();
	uint64_t limit, used;
	unsigned int node;

	for_each_node(node, nodes) {
		if (setting_read(NODE_LIMIT(node), &limit) ||
		    setting_read(NODE_USED(node), &used))
			continue;
		rows = append_item(rows, json_pack("{s:i, s:o, s:o}", "node", (int)node,
						   "limit_bytes", limit_to_json(limit),
						   "used_bytes", limit_to_json(used)));
	}
	return rows;
}

static json_t *limits_to_json(void)
{
	struct actmem_nodes nodes;
	uint64_t user;

	settings_nodes(&nodes);
	return json_pack("{s:o, s:o, s:o, s:o, s:o}",
			 "user_limit_bytes",
			 setting_read(USER_LIMIT, &user) ? json_null() : limit_to_json(user),
			 "memlock", facts_memlock(), "nodes", node_limits(&nodes),
			 "mounts", facts_mounts(), "cgroups", cgroup_limits(&nodes));
}

/* @bytes is null for no limit. @used is NULL if it is not known. */
static json_t *add_limit(json_t *rows, json_t *of, json_t *bytes, json_t *used, json_t *set_by)
{
	return append_item(rows, json_pack("{s:o, s:O?, s:O?, s:o}", "of", of, "limit_bytes", bytes,
					   "used_bytes", used, "set_by", set_by));
}

/* While the user limit is max, RLIMIT_MEMLOCK applies. */
static json_t *add_user(json_t *rows, const json_t *limits)
{
	json_t *user = json_object_get(limits, "user_limit_bytes");
	json_t *soft = json_object_get(json_object_get(limits, "memlock"), "soft_bytes");

	rows = add_limit(rows, json_string("each user"), user, NULL,
			 json_string("actmem limit --user LIMIT"));
	if (json_is_null(user))
		rows = add_limit(rows, json_string("each user, by RLIMIT_MEMLOCK (here)"), soft, NULL,
				 json_string("ulimit -l; limits.d; LimitMEMLOCK= of a unit"));
	return rows;
}

static json_t *add_rows(json_t *rows, const json_t *limits)
{
	const json_t *each;
	size_t i;

	rows = add_user(rows, limits);
	json_array_foreach(json_object_get(limits, "nodes"), i, each) {
		int node = (int)json_integer_value(json_object_get(each, "node"));

		rows = add_limit(rows, json_sprintf("node %d", node),
				 json_object_get(each, "limit_bytes"),
				 json_object_get(each, "used_bytes"),
				 json_sprintf("actmem limit --nodes %d LIMIT", node));
	}
	json_array_foreach(json_object_get(limits, "mounts"), i, each) {
		const char *path = json_string_value(json_object_get(each, "path"));

		rows = add_limit(rows, json_sprintf("mount %s", path),
				 json_object_get(each, "size_bytes"),
				 json_object_get(each, "used_bytes"),
				 json_sprintf("mount -o remount,size=SIZE %s", path));
	}
	json_array_foreach(json_object_get(limits, "cgroups"), i, each) {
		int node = (int)json_integer_value(json_object_get(each, "node"));

		rows = add_limit(rows, json_sprintf("this cgroup, node %d", node),
				 json_object_get(each, "limit_bytes"),
				 json_object_get(each, "used_bytes"),
				 json_incref(json_object_get(each, "file")));
	}
	return rows;
}

/* Formats a limit as the user writes it, with "max" for none. */
static char *cell_limit(const json_t *row, const char *key, unsigned int flags)
{
	return json_is_null(json_object_get(row, key)) ? strdup("max") :
	       cell_bytes(row, key, flags);
}

static int print_limits(const json_t *limits)
{
	static const struct column columns[] = {
		{ "LIMIT OF", "of", cell_text, COLUMN_LEFT },
		{ "BYTES", "limit_bytes", cell_limit, COLUMN_RIGHT },
		{ "USED", "used_bytes", cell_bytes, COLUMN_RIGHT },
		{ "SET BY", "set_by", cell_text, COLUMN_LEFT },
	};
	json_t *rows = add_rows(json_array(), limits);
	int err = rows ? table_print(rows, columns, sizeof(columns) / sizeof(columns[0]), 0) :
			 -ENOMEM;

	json_decref(rows);
	return err;
}

static bool show_limits(bool as_json)
{
	json_t *limits = limits_to_json();
	bool is_good = table_show(limits, as_json, print_limits);

	json_decref(limits);
	return is_good;
}

static bool set_limit(const char *name, uint64_t bytes)
{
	int err = setting_write(name, bytes);

	if (err)
		setting_tell(name, err);
	return !err;
}

static bool set_limits(const struct limit *limit)
{
	unsigned int node;

	if (limit->user && !set_limit(USER_LIMIT, limit->user_bytes))
		return false;
	for_each_node(node, &limit->given.nodes)
		if (limit->given.value && !set_limit(NODE_LIMIT(node), limit->node_bytes))
			return false;
	return true;
}

/* Saves the limits that the options name, or all limits if they name none. */
static bool change_limits(struct saved *saved, const void *context)
{
	const struct limit *limit = context;
	struct actmem_nodes nodes = limit->given.nodes;
	bool is_all = nodes_empty(&nodes) && !limit->user;
	unsigned int node;

	if (is_all)
		settings_nodes(&nodes);
	if ((is_all || limit->user) &&
	    !setting_to_save(USER_LIMIT, limit->user ? &limit->user_bytes : NULL,
			     &saved->user_limit))
		return false;
	for_each_node(node, &nodes)
		if (!setting_to_save(NODE_LIMIT(node), limit->given.value ? &limit->node_bytes : NULL,
				     &saved->node_limits[node]))
			return false;
	return true;
}

/* Checks that the options fit together. If not, prints why and returns false. */
static bool check_usage(struct limit *limit)
{
	const char *value = limit->given.value;
	bool has_nodes = !nodes_empty(&limit->given.nodes);

	if (value && !has_nodes)
		warnx("the limit '%s' needs --nodes, such as --nodes 0; or use --user %s", value, value);
	else if (has_nodes && !value && !limit->given.is_saved)
		warnx("--nodes needs a limit, such as --nodes 0 448G, or max");
	else
		return !value || setting_take(value, true, &limit->node_bytes);
	return false;
}

int cmd_limit(int argc, char **argv)
{
	static const struct option options[] = {
		{ "user", required_argument, NULL, 'u' },
		SETTINGS_OPTIONS,
		COMMON_OPTIONS
	};
	const struct option_table table = { SETTINGS_OPTIONS_SHORT "u:", options, help, limit_option };
	struct limit limit = { 0 };
	bool is_saved, is_good = true;
	int status;

	if (!take_options(&table, &limit, argc, argv, &limit.given.as_json, &status))
		return status;
	if (!check_usage(&limit))
		return usage_hint();
	is_saved = limit.given.is_saved;
	if (!settings_are_there(&limit.given.nodes) || (is_saved && !saved_can_change(false)))
		return STATUS_FAILED;
	is_good = set_limits(&limit) && (!is_saved || saved_change(change_limits, &limit));
	if (is_good && (limit.given.as_json || (!limit.user && !limit.given.value && !is_saved)))
		is_good = show_limits(limit.given.as_json);
	return is_good ? STATUS_OK : STATUS_FAILED;
}
