// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem list: lists the regions on this machine that the caller may see. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "actmem.h"
#include "facts.h"
#include "list_filter.h"
#include "machine/machine.h"
#include "mallocs.h"
#include "named_files.h"
#include "table.h"
#include "tool.h"

static const char help[] =
	"Lists the regions of both backends on this machine, by process. Only root sees other\n"
	"users' regions.\n"
	"\n"
	"  -u, --user=USER        only regions of this user (name or number)\n"
	"  -p, --pid=PID          only regions of this process\n"
	"  -n, --node=NODE        only regions with pages on this node\n"
	"  -m, --name=PATTERN     only regions whose name matches, such as 'job*'\n"
	"  -c, --cgroup=CGROUP    only regions of processes in this cgroup or below it\n"
	"  -o, --output=COLUMNS   show these columns, such as pid,name,size\n"
	"  -J, --json             print JSON; sizes are bytes\n"
	"  -b, --bytes            print sizes as bytes, not as 64M or 1.5G\n"
	"  -h, --help             print this\n"
	"\n"
	"COLUMNS:\n"
	"\n"
	"  pid        id of the process that has the region\n"
	"  user       owner of the region\n"
	"  command    name of the process\n"
	"  name       name of the region\n"
	"  size       length of the region in bytes\n"
	"  allocated  allocated bytes; a lazy region may have fewer than its size\n"
	"  page       bytes of each page (thp: transparent huge pages)\n"
	"  nodes      bytes on each node\n"
	"  mapped     bytes that the process has mapped\n"
	"  pinned     bytes pinned by devices and I/O (driver) or locked by mlock (memfd)\n"
	"  poisoned   bytes lost to hardware errors (driver)\n"
	"  file       path of a region that is a file, or its name if the path is not visible.\n"
	"             The file outlives its processes ('actmem prune' removes unused ones)\n"
	"  backend    driver or memfd\n"
	"  cgroup     cgroup of the process. This column and the next two appear only with -o\n"
	"  age        age of a file without a process, in seconds\n"
	"  id         id of the region\n"
	"\n"
	"Then lists processes under 'actmem run --malloc': the number of large blocks (MALLOC\n"
	"BLOCKS), their bytes (IN USE), freed bytes that the pool keeps (POOLED), bytes of\n"
	"address space (MAPPED), and blocks that malloc served instead of the pool (REFUSED).";

static int compare_regions(const void *left, const void *right)
{
	const struct actmem_region_info *a = left, *b = right;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->backend != b->backend)
		return a->backend < b->backend ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}

static json_t *nodes_to_json(const struct actmem_region_info *region)
{
	json_t *nodes = json_array();
	uint32_t node;

	for (node = 0; node < region->node_count; node++)
		if (region->node_bytes[node])
			nodes = append_item(nodes, json_pack("{s:i, s:I}", "node", (int)node,
							     "bytes",
							     (json_int_t)region->node_bytes[node]));
	return nodes;
}

/*
 * Returns the path of a process's memory cgroup, such as "/kubepods/pod7", or null if it is not
 * visible.
 */
static json_t *cgroup_to_json(int pid)
{
	struct memory_cgroup cgroup;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	if (pid <= 0 || memory_cgroup_read(&cgroup, path, "/proc/self/mounts") ||
	    !cgroup.version)
		return json_null();
	return text_to_json(cgroup.path);
}

/* Returns a row. If no process with the region is visible, pid and command are null. */
static json_t *region_to_json(const struct actmem_region_info *region)
{
	return json_pack("{s:o, s:b, s:I, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:n, s:o}",
			 "pid", region->pid > 0 ? json_integer(region->pid) : json_null(),
			 "elsewhere", region->pid < 0,
			 "uid", (json_int_t)region->uid,
			 "command", region->command[0] ? text_to_json(region->command)
						       : json_null(),
			 "name", text_to_json(region->name),
			 "backend", backend_text(region->backend),
			 "id", (json_int_t)region->id,
			 "bytes", (json_int_t)region->length,
			 "allocated_bytes", (json_int_t)region->allocated_bytes,
			 "page_bytes", (json_int_t)region->page_bytes,
			 "pages", pages_text(region->pages),
			 "nodes", nodes_to_json(region),
			 "mapped_bytes", (json_int_t)region->mapped_bytes,
			 "pinned_bytes", (json_int_t)region->pinned_bytes,
			 "demand_faults", (json_int_t)region->demand_faults,
			 "poisoned_bytes", (json_int_t)region->poisoned_bytes,
			 "exported_bytes", (json_int_t)region->exported_bytes,
			 "surplus_bytes", (json_int_t)region->surplus_bytes,
			 "lingering", !!region->lingering,
			 "named", !!region->named,
			 "path", region->path ? text_to_json(region->path) : json_null(),
			 "age_seconds",
			 "cgroup", cgroup_to_json(region->pid));
}

/*
 * Returns true if the region is a file of the driver, but its path is not known, because no visible
 * process has the file open.
 */
static bool lacks_path(const json_t *row)
{
	return json_is_true(json_object_get(row, "named")) &&
	       json_is_null(json_object_get(row, "path")) &&
	       !strcmp(json_string_value(json_object_get(row, "backend")),
		       backend_text(ACTMEM_BACKEND_DRIVER));
}

struct path_search {
	json_t *rows;
	bool is_full;			/* out of memory */
};

/*
 * Adds the path of a file, and the time since its last change, to the row of its region. Returns
 * true, which ends the search, if out of memory.
 */
static bool add_path(void *context, const struct named_file *file)
{
	struct path_search *search = context;
	json_t *row;
	size_t i;

	json_array_foreach(search->rows, i, row)
		if (lacks_path(row) && (uint64_t)json_integer_value(
					       json_object_get(row, "id")) == file->id)
			search->is_full |= json_object_set_new(row, "path",
							       text_to_json(file->path)) ||
					   json_object_set_new(row, "age_seconds",
							       json_integer(time(NULL) -
									    file->changed));
	return search->is_full;
}

/*
 * Searches the mounted file systems once if any row lacks its path. Takes ownership of @rows.
 * Returns NULL if out of memory.
 */
static json_t *add_paths(json_t *rows)
{
	struct path_search search = { .rows = rows };
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		if (lacks_path(row)) {
			named_files_find(add_path, &search);
			break;
		}
	}
	if (!search.is_full)
		return rows;
	json_decref(rows);
	return NULL;
}

/* A filter selects regions only, so a filtered list omits the blocks of malloc. */
static json_t *list_to_json(const struct actmem_region_info *regions, size_t count,
			    const struct list_filter *filter)
{
	json_t *rows = json_array();
	size_t i;

	for (i = 0; rows && i < count; i++) {
		json_t *row = region_to_json(&regions[i]);

		if (row && !filter_takes(filter, row))
			json_decref(row);
		else
			rows = append_item(rows, row);
	}
	rows = add_paths(rows);
	return rows ? json_pack("{s:o, s:o, s:b}", "regions", rows, "malloc",
				filter_is_set(filter) ? json_array() : mallocs_to_json(),
				"all_users", sees_machine())
		    : NULL;
}

static char *cell_command(const json_t *row, const char *key, unsigned int flags)
{
	if (json_is_true(json_object_get(row, "lingering")))
		return strdup("(closed, still pinned)");
	if (json_is_true(json_object_get(row, "elsewhere")))
		return strdup("(not visible from here)");
	if (json_is_null(json_object_get(row, "pid")))
		return strdup("(no process)");
	return cell_text(row, key, flags);
}

/*
 * Marks transparent huge pages, because the kernel allocates small pages if it finds no free huge
 * page.
 */
static char *cell_pages(const json_t *row, const char *key, unsigned int flags)
{
	const char *pages = json_string_value(json_object_get(row, "pages"));
	char *bytes, *text;

	if (strcmp(pages, "thp"))
		return cell_bytes(row, key, flags);
	bytes = cell_bytes(row, key, flags);
	if (!bytes || asprintf(&text, "%s(thp)", bytes) < 0)
		text = NULL;
	free(bytes);
	return text;
}

static char *cell_file(const json_t *row, const char *key, unsigned int flags)
{
	if (json_is_false(json_object_get(row, "named")))
		return strdup("-");
	return cell_text(row, json_is_null(json_object_get(row, key)) ? "name" : key, flags);
}

/* The last three columns are shown only on request. */
static const struct column all_columns[] = {
	{ "PID", "pid", cell_text, COLUMN_RIGHT },
	{ "USER", "uid", cell_user, COLUMN_LEFT },
	{ "COMMAND", "command", cell_command, COLUMN_LEFT },
	{ "NAME", "name", cell_text, COLUMN_LEFT },
	{ "SIZE", "bytes", cell_bytes, COLUMN_RIGHT },
	{ "ALLOCATED", "allocated_bytes", cell_bytes, COLUMN_RIGHT },
	{ "PAGE", "page_bytes", cell_pages, COLUMN_RIGHT },
	{ "NODES", "nodes", cell_nodes, COLUMN_LEFT },
	{ "MAPPED", "mapped_bytes", cell_bytes, COLUMN_RIGHT },
	{ "PINNED", "pinned_bytes", cell_bytes, COLUMN_RIGHT },
	{ "POISONED", "poisoned_bytes", cell_bytes, COLUMN_RIGHT },
	{ "FILE", "path", cell_file, COLUMN_LEFT },
	{ "BACKEND", "backend", cell_text, COLUMN_LEFT },
	{ "CGROUP", "cgroup", cell_text, COLUMN_LEFT },
	{ "AGE", "age_seconds", cell_text, COLUMN_RIGHT },
	{ "ID", "id", cell_text, COLUMN_RIGHT },
};

#define ALL_COLUMNS	(sizeof(all_columns) / sizeof(all_columns[0]))
#define USUAL_COLUMNS	(ALL_COLUMNS - 3)

/* Warns on stderr if some regions are not shown. The table itself does not say so. */
static int tell_what_is_missing(bool as_json)
{
	int err = driver_missing();

	if (err)
		warnx("regions of the driver are not shown: %s", actmem_error_in(ACTMEM_NAMES_RUN));
	else if (!as_json && !sees_all_users())
		warnx("only root sees other users' regions");
	return err && err != -EACCES && err != -EPERM ? STATUS_FAILED : STATUS_OK;
}

struct list_options {
	struct list_filter filter;
	unsigned int table_flags;
};

static bool list_option(void *data, int option, const char *value)
{
	struct list_options *options = data;
	struct list_filter *filter = &options->filter;

	switch (option) {
	case 'u':
		return filter_user(filter, value);
	case 'p':
		return filter_number(&filter->pid, "--pid", value);
	case 'n':
		return filter_number(&filter->node, "--node", value);
	case 'm':
		filter->name = value;
		return true;
	case 'c':
		filter->cgroup = value;
		if (!*value)
			warnx("--cgroup is empty");
		return *value;
	case 'o':
		filter->columns = value;
		return true;
	default:
		options->table_flags |= TABLE_EXACT_BYTES;
		return true;
	}
}

int cmd_list(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "user", required_argument, NULL, 'u' },
		{ "pid", required_argument, NULL, 'p' },
		{ "node", required_argument, NULL, 'n' },
		{ "name", required_argument, NULL, 'm' },
		{ "cgroup", required_argument, NULL, 'c' },
		{ "output", required_argument, NULL, 'o' },
		{ "bytes", no_argument, NULL, 'b' },
		COMMON_OPTIONS
	};
	const struct option_table table = { "u:p:n:m:c:o:bJh", long_options, help, list_option };
	struct list_options options = { .filter = LIST_FILTER_NONE };
	struct column columns[LIST_COLUMNS_MAX];
	struct actmem_region_info *regions;
	size_t count, column_count;
	bool as_json = false;
	json_t *list;
	int status, err;

	if (!take_options(&table, &options, argc, argv, &as_json, &status))
		return status;
	column_count = filter_columns(&options.filter, all_columns, ALL_COLUMNS, USUAL_COLUMNS,
				      columns);
	if (!column_count)
		return usage_hint();
	if (actmem_region_list(&regions, &count))
		return print_library_error();
	if (count)
		qsort(regions, count, sizeof(*regions), compare_regions);
	list = list_to_json(regions, count, &options.filter);
	free(regions);
	if (!list)
		err = -ENOMEM;
	else if (as_json)
		err = table_print_json(list);
	else
		err = table_print(json_object_get(list, "regions"), columns, column_count,
				  options.table_flags) ?:
		      mallocs_print(json_object_get(list, "malloc"), options.table_flags);
	json_decref(list);
	if (err) {
		warnx("%s", strerror(-err));
		return STATUS_FAILED;
	}
	return tell_what_is_missing(as_json);
}
