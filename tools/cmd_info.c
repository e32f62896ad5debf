// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem info: shows the backend, memory and limits of this machine. */
#include <err.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include "actmem.h"
#include "facts.h"
#include "table.h"
#include "tool.h"

static const char help[] =
	"Shows the backend that a program would use now, and the reason; versions; limits;\n"
	"and mounted file systems of the driver, with their size and use. For each node, shows\n"
	"its memory, the driver's regions and pool, and pools of huge pages.\n"
	"\n"
	"  -J, --json     print JSON; sizes are bytes, null means no limit or unknown\n"
	"  -b, --bytes    print sizes as bytes, not as 64M or 1.5G\n"
	"  -h, --help     print this\n"
	"\n"
	"Exit status 1 if the requested backend is not available (ACTMEM_BACKEND=driver\n"
	"without the driver).";

/*
 * Returns {"backend", "reason"}. If no backend can be opened, backend is null and reason is the
 * error message.
 */
static json_t *backend_to_json(void)
{
	struct actmem *am;
	json_t *backend;

	if (actmem_open(&am, NULL))
		return json_pack("{s:n, s:o}", "backend", "reason", text_to_json(actmem_error_in(ACTMEM_NAMES_RUN)));
	backend = json_pack("{s:s, s:o}", "backend", backend_text(actmem_get_backend(am)),
			    "reason", text_to_json(actmem_describe(am)));
	actmem_close(am);
	return backend;
}

static json_t *info_to_json(void)
{
	struct utsname kernel;
	json_t *rest;

	uname(&kernel);
	rest = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "kernel", kernel.release,
			 "library", facts_library(),
			 "driver", facts_driver(),
			 "io_uring", facts_io_uring(),
			 "thp", facts_thp(),
			 "memory", facts_memory(),
			 "memlock", facts_memlock(),
			 "memory_cgroup", facts_memory_cgroup(),
			 "mounts", facts_mounts(),
			 "nodes", facts_nodes());
	return merge_objects(backend_to_json(), rest);
}

__attribute__((format(printf, 3, 4)))
static int add_line(json_t *lines, const char *what, const char *format, ...)
{
	va_list arguments;
	json_t *text;

	va_start(arguments, format);
	text = format_to_json(format, arguments);
	va_end(arguments);
	return json_array_append_new(lines, json_pack("{s:s, s:o}", "what", what, "text", text)) ?
	       -ENOMEM : 0;
}

static long long integer_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Returns "unlimited" for null, or else the formatted bytes. The caller frees the text. */
static char *limit_text(const json_t *object, const char *key, unsigned int flags)
{
	if (json_is_null(json_object_get(object, key)))
		return strdup("unlimited");
	return cell_bytes(object, key, flags);
}

static int add_versions(json_t *lines, const json_t *info)
{
	const json_t *library = json_object_get(info, "library");
	const json_t *driver = json_object_get(info, "driver");
	const json_t *regions = json_object_get(driver, "regions");
	const json_t *error = json_object_get(driver, "error");
	int err;

	err = add_line(lines, "Library", "%s, driver ABI %lld (oldest %lld)",
		       json_string_value(json_object_get(library, "version")),
		       integer_of(library, "abi"), integer_of(library, "abi_oldest"));
	if (!err && json_is_null(error))
		err = add_line(lines, "Driver", "%s, ABI %lld (oldest %lld)",
			       json_string_value(json_object_get(driver, "version")) ?: "unknown",
			       integer_of(driver, "abi"), integer_of(driver, "abi_oldest"));
	else if (!err)
		err = add_line(lines, "Driver", "%s: %s",
			       json_string_value(json_object_get(driver, "device")),
			       json_string_value(error));
	if (!err && json_is_integer(regions))
		err = add_line(lines, "Driver's regions",
			       "%lld, of which %lld closed but still pinned",
			       integer_of(driver, "regions"),
			       integer_of(driver, "lingering_regions"));
	return err;
}

static int add_io_uring(json_t *lines, const json_t *io_uring)
{
	const json_t *error = json_object_get(io_uring, "error");

	if (json_is_null(error))
		return add_line(lines, "io_uring", "can be used");
	if (json_is_null(json_object_get(io_uring, "disabled")))
		return add_line(lines, "io_uring", "%s", json_string_value(error));
	return add_line(lines, "io_uring", "%s (kernel.io_uring_disabled = %lld)",
			json_string_value(error), integer_of(io_uring, "disabled"));
}

static int add_limits(json_t *lines, const json_t *info, unsigned int flags)
{
	const json_t *memlock = json_object_get(info, "memlock");
	const json_t *cgroup = json_object_get(info, "memory_cgroup");
	char *soft = limit_text(memlock, "soft_bytes", flags);
	char *hard = limit_text(memlock, "hard_bytes", flags);
	char *limit = limit_text(cgroup, "limit_bytes", flags);
	char *used = limit_text(cgroup, "used_bytes", flags);
	int err = -ENOMEM;

	if (soft && hard && limit && used)
		err = add_line(lines, "Locked memory", "%s (ulimit -l), at most %s", soft, hard);
	if (!err && json_is_null(cgroup))
		err = add_line(lines, "Memory cgroup", "none");
	else if (!err)
		err = add_line(lines, "Memory cgroup", "%s used of %s (v%d, %s)", used, limit,
			       (int)json_integer_value(json_object_get(cgroup, "version")),
			       json_string_value(json_object_get(cgroup, "path")));
	free(soft);
	free(hard);
	free(limit);
	free(used);
	return err;
}

/* Sums a value over all nodes. If there is no driver, the driver's values count as 0. */
static long long sum_of_nodes(const json_t *info, const char *object, const char *key)
{
	const json_t *node;
	long long sum = 0;
	size_t i;

	json_array_foreach(json_object_get(info, "nodes"), i, node)
		sum += integer_of(object ? json_object_get(node, object) : node, key);
	return sum;
}

/*
 * Adds the line about the machine's memory. The line also shows the driver's memory, because the
 * kernel has no counter for that memory, and counts it only as used.
 */
static int add_memory(json_t *lines, const json_t *info, unsigned int flags)
{
	json_t *driver = json_pack("{s:I, s:I, s:I}",
				   "regions", (json_int_t)sum_of_nodes(info, NULL, "region_bytes"),
				   "ready", (json_int_t)sum_of_nodes(info, "pool", "free_bytes"),
				   "failed", (json_int_t)sum_of_nodes(info, NULL, "poisoned_bytes"));
	const json_t *memory = json_object_get(info, "memory");
	char *available = cell_bytes(memory, "available_bytes", flags);
	char *total = cell_bytes(memory, "total_bytes", flags);
	char *regions = cell_bytes(driver, "regions", flags);
	char *ready = cell_bytes(driver, "ready", flags);
	char *failed = cell_bytes(driver, "failed", flags);
	int err = -ENOMEM;

	if (!available || !total || !regions || !ready || !failed)
		goto out;
	if (!json_is_null(json_object_get(json_object_get(info, "driver"), "error")))
		err = add_line(lines, "Memory", "%s available of %s", available, total);
	else
		err = add_line(lines, "Memory",
			       "%s available of %s; the driver has %s in regions, %s ready in pools, %s that failed",
			       available, total, regions, ready, failed);
out:
	json_decref(driver);
	free(available);
	free(total);
	free(regions);
	free(ready);
	free(failed);
	return err;
}

/* Adds no line if there is no driver, or if the driver is too old to have this limit. */
static int add_user_limit(json_t *lines, const json_t *driver, unsigned int flags)
{
	char *limit;
	int err;

	if (!json_object_get(driver, "user_limit_bytes"))
		return 0;
	if (json_is_null(json_object_get(driver, "user_limit_bytes")))
		limit = strdup("none set: each process's RLIMIT_MEMLOCK applies");
	else
		limit = limit_text(driver, "user_limit_bytes", flags);
	err = limit ? add_line(lines, "Driver's user limit", "%s", limit) : -ENOMEM;
	free(limit);
	return err;
}

/* Adds no line if there is no driver. */
static int add_cgroup_limits(json_t *lines, const json_t *info)
{
	const char *kernel = json_string_value(json_object_get(info, "kernel"));
	const json_t *has = json_object_get(json_object_get(info, "driver"), "cgroup_limits");
	int major = 0, minor = 0;

	if (json_is_true(has))
		return add_line(lines, "Limits by cgroup",
				"actmem/nodeN in dmem.max; pools count as well");
	if (!json_is_false(has))
		return 0;
	sscanf(kernel ? kernel : "", "%d.%d", &major, &minor);
	return add_line(lines, "Limits by cgroup",
			"none, because %s; mount a file system with size= for each job instead",
			major > 6 || (major == 6 && minor >= 14) ?
			"this kernel is built without CONFIG_CGROUP_DMEM" :
			"this kernel is older than 6.14");
}

static int print_lines(const json_t *info, unsigned int flags)
{
	static const struct column columns[] = {
		{ "WHAT", "what", cell_text, COLUMN_LEFT },
		{ "TEXT", "text", cell_text, COLUMN_WRAPPED },
	};
	const json_t *thp = json_object_get(info, "thp");
	char *backend = cell_text(info, "backend", flags);
	char *enabled = cell_text(thp, "enabled", flags);
	char *shmem_enabled = cell_text(thp, "shmem_enabled", flags);
	json_t *lines = json_array();
	int err = -ENOMEM;

	if (!backend || !enabled || !shmem_enabled || !lines)
		goto out;
	if (add_line(lines, "Backend", "%s",
		     json_string_value(json_object_get(info, "reason"))) ||
	    add_line(lines, "Kernel", "%s", json_string_value(json_object_get(info, "kernel"))) ||
	    add_versions(lines, info) ||
	    add_io_uring(lines, json_object_get(info, "io_uring")) ||
	    add_line(lines, "Transparent huge pages", "%s, shared memory: %s", enabled,
		     shmem_enabled) ||
	    add_memory(lines, info, flags) || add_limits(lines, info, flags) ||
	    add_user_limit(lines, json_object_get(info, "driver"), flags) ||
	    add_cgroup_limits(lines, info))
		goto out;
	err = table_print(lines, columns, 2, flags | TABLE_NO_HEADINGS);
out:
	json_decref(lines);
	free(backend);
	free(enabled);
	free(shmem_enabled);
	return err;
}

/* Formats a hugetlb pool as free and total pages. */
static char *cell_pool(const json_t *row, const char *key, unsigned int flags)
{
	const json_t *pool = json_object_get(row, key);
	char *text;

	if (json_is_null(pool))
		return strdup("-");
	if (asprintf(&text, "%" JSON_INTEGER_FORMAT "/%" JSON_INTEGER_FORMAT,
		     json_integer_value(json_object_get(pool, "free")),
		     json_integer_value(json_object_get(pool, "total"))) < 0)
		return NULL;
	return text;
}

/* Formats the driver's pool as ready, lent and total bytes. */
static char *cell_warm_pool(const json_t *row, const char *key, unsigned int flags)
{
	const json_t *pool = json_object_get(row, key);
	char *ready, *lent, *total, *text = NULL;

	if (json_is_null(pool))
		return strdup("-");
	ready = cell_bytes(pool, "free_bytes", flags);
	lent = cell_bytes(pool, "lent_bytes", flags);
	total = cell_bytes(pool, "total_bytes", flags);
	if (ready && lent && total && asprintf(&text, "%s/%s/%s", ready, lent, total) < 0)
		text = NULL;
	free(ready);
	free(lent);
	free(total);
	return text;
}

static int print_mounts(const json_t *mounts, unsigned int flags)
{
	static const struct column columns[] = {
		{ "MOUNTED AT", "path", cell_text, COLUMN_LEFT },
		{ "SIZE", "size_bytes", cell_bytes, COLUMN_RIGHT },
		{ "USED", "used_bytes", cell_bytes, COLUMN_RIGHT },
	};

	if (!json_array_size(mounts))
		return 0;
	putchar('\n');
	return table_print(mounts, columns, sizeof(columns) / sizeof(columns[0]), flags);
}

static int print_text(const json_t *info, unsigned int flags)
{
	static const struct column columns[] = {
		{ "NODE", "node", cell_text, COLUMN_RIGHT },
		{ "MEMORY", "total_bytes", cell_bytes, COLUMN_RIGHT },
		{ "FREE", "free_bytes", cell_bytes, COLUMN_RIGHT },
		{ "DRIVER'S REGIONS", "region_bytes", cell_bytes, COLUMN_RIGHT },
		{ "LIMIT", "limit_bytes", cell_bytes, COLUMN_RIGHT },
		{ "POISONED", "poisoned_bytes", cell_bytes, COLUMN_RIGHT },
		{ "FREE/LENT/POOL", "pool", cell_warm_pool, COLUMN_RIGHT },
		{ "FREE/2M PAGES", "huge_2M", cell_pool, COLUMN_RIGHT },
		{ "FREE/1G PAGES", "huge_1G", cell_pool, COLUMN_RIGHT },
	};
	int err = print_lines(info, flags);

	if (!err)
		err = print_mounts(json_object_get(info, "mounts"), flags);
	if (err)
		return err;
	putchar('\n');
	return table_print(json_object_get(info, "nodes"), columns,
			   sizeof(columns) / sizeof(columns[0]), flags);
}

int cmd_info(int argc, char **argv)
{
	struct print_options options;
	bool found;
	json_t *info;
	int status, err;

	if (!take_print_options(&options, argc, argv, help, &status))
		return status;

	info = info_to_json();
	if (!info)
		err = -ENOMEM;
	else
		err = options.as_json ? table_print_json(info)
				      : print_text(info, options.table_flags);
	found = json_is_string(json_object_get(info, "backend"));
	json_decref(info);
	if (err) {
		warnx("%s", strerror(-err));
		return STATUS_FAILED;
	}
	return found ? STATUS_OK : STATUS_FAILED;
}
