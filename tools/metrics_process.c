// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Sums regions and published counters by process. An index maps labels to rows, so that finding a
 * row takes constant time.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actmem.h"
#include "machine/machine.h"
#include "metrics.h"
#include "table.h"
#include "tool.h"
#include "watch/watch.h"

#define KEY_SIZE	160

/* Returns true if the process gets its own rows. Otherwise counts the process in left_out once. */
static bool has_rows(struct process_rows *rows, int pid)
{
	char key[KEY_SIZE];
	size_t i;

	for (i = 0; i < rows->count; i++)
		if (rows->pids[i] == pid)
			return true;
	if (rows->count < PROCESSES_MAX) {
		rows->pids[rows->count++] = pid;
		return true;
	}
	snprintf(key, sizeof(key), "left out %d", pid);
	if (!json_object_get(rows->index, key) &&
	    !json_object_set_new(rows->index, key, json_true()))
		rows->left_out++;
	return false;
}

/* Returns the row with that key, or NULL if there is none yet. */
static json_t *find_row(const struct process_rows *rows, const char *key)
{
	return json_object_get(rows->index, key);
}

/* Adds a new row. Takes ownership of @row. Returns NULL if out of memory. */
static json_t *index_row(struct process_rows *rows, json_t *array, const char *key, json_t *row)
{
	if (!row || json_array_append_new(array, row) ||
	    json_object_set(rows->index, key, row))
		return NULL;
	return row;
}

bool row_add(json_t *row, const char *key, uint64_t amount)
{
	uint64_t sum = (uint64_t)json_integer_value(json_object_get(row, key));

	if (amount > INT64_MAX - sum)
		sum = INT64_MAX;
	else
		sum += amount;
	return !json_object_set_new(row, key, json_integer((json_int_t)sum));
}

static json_t *backend_row(struct process_rows *rows, const char *backend)
{
	return find_row(rows, backend) ?:
	       index_row(rows, rows->backends, backend,
			 json_pack("{s:s, s:i, s:i}", "backend", backend, "regions", 0, "bytes", 0));
}

/*
 * Returns the region's state. "no_process" indicates a leak. The state is "elsewhere" if this
 * process cannot see the region's owner.
 */
static const char *state_of(const struct actmem_region_info *region)
{
	if (region->lingering)
		return "lingering";
	if (region->pid < 0)
		return "elsewhere";
	return region->pid ? "held" : "no_process";
}

static json_t *region_row(struct process_rows *rows, const struct actmem_region_info *region)
{
	const char *backend = backend_text(region->backend), *pages = pages_text(region->pages);
	const char *kind = region->named ? "named" : "anonymous", *state = state_of(region);
	bool is_own = region->pid > 0 && has_rows(rows, region->pid);
	int pid = is_own ? region->pid : 0;
	char key[KEY_SIZE];

	snprintf(key, sizeof(key), "region %d %u %s %s %s %s", pid, region->uid, backend, pages,
		 kind, state);
	return find_row(rows, key) ?:
	       index_row(rows, rows->regions, key, json_pack(
			 "{s:o, s:I, s:o, s:s, s:s, s:s, s:s}",
			 "pid", pid ? json_integer(pid) : json_null(),
			 "uid", (json_int_t)region->uid,
			 "command", text_to_json(is_own ? region->command : ""),
			 "backend", backend, "pages", pages, "kind", kind, "state", state));
}

static bool add_region_row(struct process_rows *rows, const struct actmem_region_info *region)
{
	json_t *backend = backend_row(rows, backend_text(region->backend));
	json_t *row = region_row(rows, region);

	return backend && row && row_add(backend, "regions", 1) &&
	       row_add(backend, "bytes", region->length) && row_add(row, "regions", 1) &&
	       row_add(row, "bytes", region->length) &&
	       row_add(row, "allocated_bytes", region->allocated_bytes) &&
	       row_add(row, "pinned_bytes", region->pinned_bytes);
}

/* Returns false after printing the error message. */
static bool add_regions(struct process_rows *rows)
{
	struct actmem_region_info *regions;
	size_t count, i;
	bool good = true;

	if (actmem_region_list(&regions, &count)) {
		print_library_error();
		return false;
	}
	for (i = 0; good && i < count; i++)
		good = add_region_row(rows, &regions[i]) &&
		       reclaim_add_region(&rows->reclaim, &regions[i]);
	free(regions);
	if (!good)
		warnx("%s", strerror(ENOMEM));
	return good;
}

static json_t *process_row(struct process_rows *rows, int pid, uid_t uid, const char *backend)
{
	bool is_own = has_rows(rows, pid);
	char key[KEY_SIZE], command[16] = "";

	if (is_own)
		process_command(pid, command);
	snprintf(key, sizeof(key), "process %d %u %s", is_own ? pid : 0, uid, backend);
	return find_row(rows, key) ?:
	       index_row(rows, rows->processes, key, json_pack(
			 "{s:o, s:I, s:o, s:s}", "pid", is_own ? json_integer(pid) : json_null(),
			 "uid", (json_int_t)uid, "command", text_to_json(command),
			 "backend", backend));
}

/*
 * Returns true for a row that sums several processes. Such a row has no counters, because the sum
 * would decrease when one of the processes ends.
 */
static bool is_sum(const json_t *row)
{
	return json_is_null(json_object_get(row, "pid"));
}

/*
 * Adds the totals of the stores. Older libraries do not publish these totals. Returns false if out
 * of memory.
 */
static bool add_traffic(json_t *row, const struct published_traffic *traffic)
{
	struct actmem_store_stats stats;

	if (traffic->count != TRAFFIC_TOTALS)
		return true;
	memcpy((char *)&stats + TRAFFIC_FIRST, traffic->totals, sizeof(traffic->totals));
	return row_add(row, "puts", stats.puts_total) &&
	       row_add(row, "takes", stats.takes_total) &&
	       row_add(row, "ahead", stats.hits_total) &&
	       row_add(row, "late", stats.late_total) &&
	       row_add(row, "misses", stats.misses_total) &&
	       row_add(row, "put_stall_ns", stats.put_stall_ns_total) &&
	       row_add(row, "take_stall_ns", stats.take_stall_ns_total) &&
	       row_add(row, "spilled_bytes_total", stats.spilled_bytes_total) &&
	       row_add(row, "filled_bytes_total", stats.filled_bytes_total) &&
	       row_add(row, "failed_spills", stats.failed_spills_total) &&
	       row_add(row, "failed_fills", stats.failed_fills_total);
}

struct rows_of_process {
	struct process_rows *rows;
	int pid;
};

/* Adds the counters that one handle (struct actmem) of a process publishes. */
static int add_published(void *context, int fd)
{
	const struct rows_of_process *process = context;
	struct stats_header header;
	const struct counters *counters = &header.counters;
	bool is_read = published_header(fd, &header);
	uid_t uid;
	json_t *row;

	close(fd);
	if (!is_read)
		return 0;
	reclaim_add_published(&process->rows->reclaim, process->pid, &header);
	if (!process_owner(process->pid, &uid))
		return 0;
	row = process_row(process->rows, process->pid, uid,
			  header.backend == ACTMEM_BACKEND_DRIVER ?
			  backend_text(ACTMEM_BACKEND_DRIVER) :
			  backend_text(ACTMEM_BACKEND_MEMFD));
	return row && row_add(row, "block_bytes", counters->block_bytes) &&
	       row_add(row, "stores", counters->stores) &&
	       row_add(row, "spilled_bytes", counters->spilled_bytes) &&
	       (is_sum(row) || (row_add(row, "fallbacks", counters->fallbacks_total) &&
				row_add(row, "regions_total", counters->regions_total) &&
				add_traffic(row, &header.traffic))) ? 0 : -ENOMEM;
}

/* Returns false after printing the error message. */
static bool add_process_counters(struct process_rows *rows, int pid)
{
	struct rows_of_process process = { rows, pid };
	int error = published_walk(pid, &published_stats, add_published, &process);

	if (error)
		warnx("cannot read what process %d publishes (%s)", pid, strerror(-error));
	return !error;
}

static bool add_processes(struct process_rows *rows)
{
	DIR *directory = opendir("/proc");
	bool good = directory;
	int pid;

	if (!good)
		warnx("cannot list the processes in /proc (%s)", strerror(errno));
	while (good && (pid = process_next(directory)))
		good = add_process_counters(rows, pid);
	if (directory)
		closedir(directory);
	return good;
}

static bool add_surplus(struct process_rows *rows)
{
	rows->surplus = reclaim_to_json(&rows->reclaim);
	if (!rows->surplus)
		warnx("%s", strerror(ENOMEM));
	return rows->surplus;
}

bool process_rows_read(struct process_rows *rows)
{
	rows->backends = json_array();
	rows->regions = json_array();
	rows->processes = json_array();
	rows->index = json_object();
	if (!rows->backends || !rows->regions || !rows->processes || !rows->index ||
	    !backend_row(rows, backend_text(ACTMEM_BACKEND_DRIVER)) ||
	    !backend_row(rows, backend_text(ACTMEM_BACKEND_MEMFD)))
		warnx("%s", strerror(ENOMEM));
	else if (add_regions(rows) && add_processes(rows) && add_surplus(rows))
		return true;
	process_rows_free(rows);
	return false;
}

void process_rows_free(struct process_rows *rows)
{
	json_decref(rows->backends);
	json_decref(rows->regions);
	json_decref(rows->processes);
	json_decref(rows->surplus);
	json_decref(rows->index);
	reclaim_free(&rows->reclaim);
}
