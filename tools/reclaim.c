// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Finds the processes whose regions exceed a limit, and follows how they return memory. The driver
 * reports the surplus of its regions. For the limit of a process, and for memory.high, this file
 * computes the surplus in the same way as lib/store/limits.c.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actmem.h"
#include "base/base.h"
#include "machine/machine.h"
#include "reclaim.h"
#include "table.h"
#include "tool.h"
#include "watch/watch.h"

#define LOOK_US		200000
/* If no memory is returned for this long, stop waiting. */
#define PATIENCE_NS	(5 * NS_PER_SECOND)

/* Totals of one process, from its regions and from the counters that its handles publish. */
struct reclaim_process {
	int pid;
	uid_t uid;
	char command[16];
	uint64_t bytes, surplus, counted;	/* counted: bytes that the memory cgroup counts */
	bool can_return;
};

/* Returns NULL if no region of the process was added. */
static struct reclaim_process *find_process(const struct reclaim *reclaim, int pid)
{
	size_t i;

	for (i = 0; i < reclaim->count; i++)
		if (reclaim->list[i].pid == pid)
			return &reclaim->list[i];
	return NULL;
}

static struct reclaim_process *add_process(struct reclaim *reclaim,
					   const struct actmem_region_info *region)
{
	struct reclaim_process *list = reallocarray(reclaim->list, reclaim->count + 1,
						    sizeof(*list));

	if (!list)
		return NULL;
	reclaim->list = list;
	list += reclaim->count++;
	*list = (struct reclaim_process){ .pid = region->pid, .uid = region->uid };
	memcpy(list->command, region->command, sizeof(list->command));
	return list;
}

bool reclaim_add_region(struct reclaim *reclaim, const struct actmem_region_info *region)
{
	struct reclaim_process *process;

	if (region->pid <= 0)
		return true;
	process = find_process(reclaim, region->pid) ?: add_process(reclaim, region);
	if (!process)
		return false;
	process->bytes += region->allocated_bytes;
	process->surplus += region->surplus_bytes;
	if (region->backend == ACTMEM_BACKEND_MEMFD && !pages_are_hugetlb(region->pages))
		process->counted += region->allocated_bytes;
	return true;
}

static void raise_surplus(struct reclaim_process *process, uint64_t surplus)
{
	if (process->surplus < surplus)
		process->surplus = surplus;
}

void reclaim_add_published(struct reclaim *reclaim, int pid, const struct stats_header *header)
{
	struct reclaim_process *process = find_process(reclaim, pid);
	uint64_t bytes = header->counters.region_bytes;

	if (!process)
		return;
	process->can_return |= header->counters.spilling_stores > 0;
	if (header->limit_bytes && bytes > header->limit_bytes)
		raise_surplus(process, bytes - header->limit_bytes);
}

static void add_cgroup(struct reclaim_process *process)
{
	struct memory_folder folder;
	struct cgroup_limit high;
	char path[32];
	double share;

	if (!process->counted)
		return;
	snprintf(path, sizeof(path), "/proc/%d/cgroup", process->pid);
	memory_folder_find(&folder, path, "/proc/self/mounts");
	if (!memory_high_read(&high, &folder) || high.used_bytes <= high.limit_bytes)
		return;
	share = (double)process->counted / (double)high.used_bytes;
	raise_surplus(process, (uint64_t)(share * (double)(high.used_bytes - high.limit_bytes)));
}

static json_t *process_to_json(const struct reclaim_process *process)
{
	return json_pack("{s:i, s:I, s:o, s:I, s:I, s:b}", "pid", process->pid,
			 "uid", (json_int_t)process->uid, "command", text_to_json(process->command),
			 "bytes", (json_int_t)process->bytes,
			 "surplus_bytes", (json_int_t)process->surplus,
			 "can_return", process->can_return);
}

json_t *reclaim_to_json(struct reclaim *reclaim)
{
	json_t *rows = json_array();
	size_t i;

	for (i = 0; i < reclaim->count; i++) {
		add_cgroup(&reclaim->list[i]);
		if (reclaim->list[i].surplus)
			rows = append_item(rows, process_to_json(&reclaim->list[i]));
	}
	return rows;
}

void reclaim_free(struct reclaim *reclaim)
{
	free(reclaim->list);
}

/* Returns false after printing an error message. */
static bool add_regions(struct reclaim *reclaim, int pid)
{
	struct actmem_region_info *regions;
	bool is_good = true;
	size_t count, i;

	if (actmem_region_list(&regions, &count)) {
		print_library_error();
		return false;
	}
	for (i = 0; i < count && is_good; i++)
		if (!pid || regions[i].pid == pid)
			is_good = reclaim_add_region(reclaim, &regions[i]);
	free(regions);
	if (!is_good)
		warnx("%s", strerror(ENOMEM));
	return is_good;
}

struct published_by {
	struct reclaim *reclaim;
	int pid;
};

static int add_published(void *context, int fd)
{
	const struct published_by *process = context;
	struct stats_header header;

	if (published_header(fd, &header))
		reclaim_add_published(process->reclaim, process->pid, &header);
	close(fd);
	return 0;
}

/* Returns false after printing an error message. */
static bool add_all_published(struct reclaim *reclaim)
{
	struct published_by process = { .reclaim = reclaim };
	size_t i;
	int error;

	for (i = 0; i < reclaim->count; i++) {
		process.pid = reclaim->list[i].pid;
		error = published_walk(process.pid, &published_stats, add_published, &process);
		if (error) {
			warnx("cannot read what process %d publishes: %s", process.pid,
			      strerror(-error));
			return false;
		}
	}
	return true;
}

json_t *reclaim_rows(int pid)
{
	struct reclaim reclaim = { 0 };
	json_t *rows = NULL;

	if (add_regions(&reclaim, pid) && add_all_published(&reclaim))
		rows = reclaim_to_json(&reclaim);
	reclaim_free(&reclaim);
	return rows;
}

static char *cell_can(const json_t *row, const char *key, unsigned int flags)
{
	(void)flags;
	return strdup(json_is_true(json_object_get(row, key)) ? "yes" :
		      "no: none of its stores spills");
}

static int print_rows(const json_t *rows, unsigned int flags)
{
	static const struct column columns[] = {
		{ "PID", "pid", cell_text, COLUMN_RIGHT },
		{ "USER", "uid", cell_user, COLUMN_LEFT },
		{ "COMMAND", "command", cell_text, COLUMN_LEFT },
		{ "BYTES", "bytes", cell_bytes, COLUMN_RIGHT },
		{ "TO RETURN", "surplus_bytes", cell_bytes, COLUMN_RIGHT },
		{ "CAN RETURN", "can_return", cell_can, COLUMN_LEFT },
	};

	return table_print(rows, columns, sizeof(columns) / sizeof(columns[0]), flags);
}

int reclaim_print(const json_t *rows, unsigned int flags)
{
	if (!json_array_size(rows))
		return 0;
	puts("\nThe usage exceeds a limit. These processes must return memory:");
	return print_rows(rows, flags);
}

static uint64_t sum_surplus(const json_t *rows)
{
	const json_t *row;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach(rows, i, row)
		sum += (uint64_t)json_integer_value(json_object_get(row, "surplus_bytes"));
	return sum;
}

static void show_progress(uint64_t left)
{
	char *text = bytes_to_text(left, 0);

	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K%s to return", text ?: "");
	free(text);
}

/* Clears the progress. Warns if @left, the bytes that were not returned, is not 0. */
static void show_end(uint64_t left, bool is_shown)
{
	char *text = bytes_to_text(left, 0);

	if (is_shown && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	if (left)
		warnx("the limit is set, but %s were not returned; `actmem waits` shows the processes",
		      text ?: "some bytes");
	free(text);
}

bool reclaim_follow(int pid)
{
	uint64_t last = UINT64_MAX, since = clock_ns(), left;
	json_t *rows = reclaim_rows(pid);
	bool is_shown = false;

	while (rows && (left = sum_surplus(rows)) && clock_ns() - since < PATIENCE_NS) {
		if (!is_shown && print_rows(rows, 0))
			break;
		is_shown = true;
		fflush(stdout);
		show_progress(left);
		if (left < last)
			since = clock_ns();
		last = left;
		usleep(LOOK_US);
		json_decref(rows);
		rows = reclaim_rows(pid);
	}
	if (!rows)
		return false;
	show_end(sum_surplus(rows), is_shown);
	json_decref(rows);
	return true;
}
