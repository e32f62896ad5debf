// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * actmem limit: shows and sets memory limits. After the command sets a limit below the usage, it
 * shows how the processes return memory (reclaim.h).
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "facts.h"
#include "base/base.h"
#include "machine/machine.h"
#include "reclaim.h"
#include "saved.h"
#include "settings.h"
#include "table.h"
#include "tool.h"
#include "watch/watch.h"
#include "../uapi/actmem.h"

static const char help[] =
	"Shows the limits on the driver's memory: for each user, each node, each mounted file\n"
	"system and, if the kernel supports it, the cgroup of this process. A limit is a\n"
	"multiple of 2M such as 64G, or max for no limit. Only root can set a limit, except\n"
	"with --pid. If a limit falls below the usage, no process loses memory. Programs that\n"
	"spill (--spill) return memory within seconds; this command shows which, and how much.\n"
	"\n"
	"  -u, --user LIMIT  set the limit on all regions of each user; with max, RLIMIT_MEMLOCK\n"
	"                    of the process that creates a region applies\n"
	"  -n, --nodes LIST  set the limit on all regions on each of these nodes, such as 0,2-3,\n"
	"                    to LIMIT\n"
	"  -p, --pid PID     set the limit on the regions of one process to LIMIT, until it ends\n"
	"  -m, --mount DIR   set size= of the driver's file system at DIR to LIMIT\n"
	"  -c, --cgroup DIR  set memory.high of the memory cgroup DIR (version 2) to LIMIT;\n"
	"                    programs with regions of memfd in 4K or thp pages follow it\n"
	"  -s, --save        also set the limit at the next boot, when the module is loaded.\n"
	"                    Without LIMIT: save the current limits\n"
	"  -J, --json        print JSON; sizes are bytes, null means no limit or unknown\n"
	"  -h, --help        print this";

struct limit {
	struct settings_options given;
	const char *user, *mount, *cgroup;
	int pid;			/* 0: none */
	uint64_t user_bytes, bytes;	/* bytes: the argument LIMIT */
};

static bool take_pid(const char *text, int *pid)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (number <= 0 || number > INT_MAX || *end) {
		warnx("--pid is '%s', but must be the number of a process", text);
		return false;
	}
	*pid = (int)number;
	return true;
}

static bool limit_option(void *data, int option, const char *value)
{
	struct limit *limit = data;

	switch (option) {
	case 'u':
		limit->user = value;
		return setting_take(value, true, &limit->user_bytes);
	case 'p':
		return take_pid(value, &limit->pid);
	case 'm':
		limit->mount = value;
		return true;
	case 'c':
		limit->cgroup = value;
		return true;
	default:
		return settings_take(&limit->given, option, value);
	}
}

/*
 * Returns the tightest dmem limit on this process for each node, or null if the kernel does not
 * support dmem.
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
				"{s:i, s:o, s:o, s:o}", "node", (int)node, "file",
				text_to_json(limit.file),
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
	/* If the regions cannot be read, show the limits anyway. */
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o?}",
			 "user_limit_bytes",
			 setting_read(USER_LIMIT, &user) ? json_null() : limit_to_json(user),
			 "memlock", facts_memlock(), "nodes", node_limits(&nodes),
			 "mounts", facts_mounts(), "cgroups", cgroup_limits(&nodes),
			 "surplus", reclaim_rows(0));
}

/*
 * Appends a row. @bytes is a JSON null if there is no limit. @used is NULL if the usage is not
 * known.
 */
static json_t *add_limit(json_t *rows, json_t *of, json_t *bytes, json_t *used, json_t *set_by)
{
	return append_item(rows, json_pack("{s:o, s:O?, s:O?, s:o}", "of", of, "limit_bytes", bytes,
					   "used_bytes", used, "set_by", set_by));
}

/* Adds the row of the user limit. While this limit is max, RLIMIT_MEMLOCK applies. */
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
				 json_sprintf("actmem limit --mount %s LIMIT", path));
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

/* Formats a limit as the options accept it; "max" means no limit. */
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
	return err ?: reclaim_print(json_object_get(limits, "surplus"), 0);
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

static bool set_pid_limit(int pid, uint64_t bytes)
{
	int handles = published_set_limit(pid, bytes == NO_LIMIT ? 0 : bytes);

	if (handles == -EFBIG)
		warnx("cannot set the limit of process %d: the file of its counters must be written up to byte %zu, but RLIMIT_FSIZE of this command is %" PRIu64 "; raise it with `ulimit -f`",
		      pid, PUBLISHED_LIMIT_END, file_bytes_limit());
	else if (handles < 0)
		warnx("cannot set the limit of process %d: %s%s", pid, strerror(-handles),
		      handles == -EACCES || handles == -EPERM ?
		      ": run this command as root or as the user of the process" : "");
	else if (!handles)
		warnx("process %d does not use actmem, or has a library of another version", pid);
	return handles > 0;
}

/*
 * Sets size= of the mount at @folder. Uses fsconfig(2), because a remount with mount(2) would reset
 * flags such as nosuid.
 */
static bool set_mount_limit(const char *folder, uint64_t bytes)
{
	struct statfs found;
	char text[32];
	int fd, err = 0;

	if (!statfs(folder, &found) && found.f_type != ACTMEM_SUPER_MAGIC) {
		warnx("cannot set size= of the file system at '%s': it is not one of the driver (type actmem)",
		      folder);
		return false;
	}
	snprintf(text, sizeof(text), "%" PRIu64, bytes);
	fd = fspick(AT_FDCWD, folder, FSPICK_CLOEXEC);
	if (fd < 0 || fsconfig(fd, FSCONFIG_SET_STRING, "size", text, 0) ||
	    fsconfig(fd, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0))
		err = errno;
	if (fd >= 0)
		close(fd);
	if (err)
		warnx("cannot set size= of the file system at '%s': %s%s", folder, strerror(err),
		      err == EPERM ? ": run this command as root" :
		      err == EINVAL ? ": it must be the folder of a mount" : "");
	return !err;
}

static bool set_cgroup_limit(const char *folder, uint64_t bytes)
{
	char path[PATH_MAX];
	int err;

	snprintf(path, sizeof(path), "%s/memory.high", folder);
	err = limit_write(path, bytes);
	if (err)
		warnx("cannot set '%s': %s%s", path, strerror(-err), err == -ENOENT ?
		      ": --cgroup needs a folder of cgroup version 2, below its root" : "");
	return !err;
}

static bool set_limits(const struct limit *limit)
{
	unsigned int node;

	if (limit->user && !set_limit(USER_LIMIT, limit->user_bytes))
		return false;
	for_each_node(node, &limit->given.nodes)
		if (limit->given.value && !set_limit(NODE_LIMIT(node), limit->bytes))
			return false;
	return (!limit->pid || set_pid_limit(limit->pid, limit->bytes)) &&
	       (!limit->mount || set_mount_limit(limit->mount, limit->bytes)) &&
	       (!limit->cgroup || set_cgroup_limit(limit->cgroup, limit->bytes));
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
		if (!setting_to_save(NODE_LIMIT(node), limit->given.value ? &limit->bytes : NULL,
				     &saved->node_limits[node]))
			return false;
	return true;
}

/* Checks that the options can be combined. If not, prints why and returns false. */
static bool check_usage(struct limit *limit)
{
	const char *value = limit->given.value;
	bool has_nodes = !nodes_empty(&limit->given.nodes);
	int targets = has_nodes + !!limit->pid + !!limit->mount + !!limit->cgroup;

	if (value && !targets)
		warnx("the limit '%s' needs --nodes, such as --nodes 0, or --pid, --mount or --cgroup; or use --user %s",
		      value, value);
	else if (targets > 1)
		warnx("--nodes, --pid, --mount and --cgroup exclude each other: each needs a limit of its own");
	else if (targets && !value && !(has_nodes && limit->given.is_saved))
		warnx("%s needs a limit, such as 448G, or max",
		      has_nodes ? "--nodes" : limit->pid ? "--pid" :
		      limit->mount ? "--mount" : "--cgroup");
	else if (limit->given.is_saved && targets && !has_nodes)
		warnx("--save is only for --user and --nodes: other limits do not survive a boot");
	else if (value && !setting_take(value, !limit->mount, &limit->bytes))
		return false;
	else if (value && !limit->bytes && (limit->pid || limit->mount))
		warnx("the limit '%s' would mean no limit: it must be at least 2M%s", value,
		      limit->pid ? ", or max" : "");
	else
		return true;
	return false;
}

int cmd_limit(int argc, char **argv)
{
	static const struct option options[] = {
		{ "user", required_argument, NULL, 'u' },
		{ "pid", required_argument, NULL, 'p' },
		{ "mount", required_argument, NULL, 'm' },
		{ "cgroup", required_argument, NULL, 'c' },
		SETTINGS_OPTIONS,
		COMMON_OPTIONS
	};
	const struct option_table table = { SETTINGS_OPTIONS_SHORT "u:p:m:c:", options, help,
					    limit_option };
	struct limit limit = { 0 };
	bool is_saved, is_set, is_good = true;
	int status;

	if (!take_options(&table, &limit, argc, argv, &limit.given.as_json, &status))
		return status;
	if (!check_usage(&limit))
		return usage_hint();
	is_saved = limit.given.is_saved;
	is_set = limit.user || limit.given.value;
	if ((limit.user || !(limit.pid || limit.mount || limit.cgroup)) &&
	    !settings_are_there(&limit.given.nodes))
		return STATUS_FAILED;
	if (is_saved && !saved_can_change(false))
		return STATUS_FAILED;
	is_good = set_limits(&limit) && (!is_saved || saved_change(change_limits, &limit));
	if (is_good && is_set && !limit.given.as_json)
		is_good = reclaim_follow(limit.pid);
	if (is_good && (limit.given.as_json || (!is_set && !is_saved)))
		is_good = show_limits(limit.given.as_json);
	return is_good ? STATUS_OK : STATUS_FAILED;
}
