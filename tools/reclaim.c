// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Finds the processes whose regions exceed a limit, and follows how they return memory. The driver
 * reports the surplus of its regions. For the limit of a process, and for memory.high, this file
 * computes it as the library does (lib/store/limits.c).
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
/* Without progress for so long, the rest is not returned. */
#define PATIENCE_NS	(5 * NS_PER_SECOND)

/* Sums of a process's regions, and of what its handles publish. */
struct process {
	int pid;
	uid_t uid;
	char command[16];
	uint64_t bytes, surplus, counted;	/* counted: by the memory cgroup */
	bool can_return;
};

struct processes {
	struct process *list;
	size_t count;
};

static struct process *find_process(struct processes *processes,
				    const struct actmem_region_info *region)
{
	struct process *list;
	size_t i;

	for (i = 0; i < processes->count; i++)
		if (processes->list[i].pid == region->pid)
			return &processes->list[i];
	list = reallocarray(processes->list, processes->count + 1, sizeof(*list));
	if (!list)
		return NULL;
	processes->list = list;
	list += processes->count++;
	*list = (struct process){ .pid = region->pid, .uid = region->uid };
	memcpy(list->command, region->command, sizeof(list->command));
	return list;
}

/* Regions without a process have no one to return them. */
static int add_regions(struct processes *processes, int pid)
{
	struct actmem_region_info *regions;
	struct process *process;
	size_t count, i;

	if (actmem_region_list(&regions, &count)) {
		print_library_error();
		return -EIO;
	}
	for (i = 0; i < count; i++) {
		if (regions[i].pid <= 0 || (pid && regions[i].pid != pid))
			continue;
		process = find_process(processes, &regions[i]);
		if (!process)
			break;
		process->bytes += regions[i].allocated_bytes;
		process->surplus += regions[i].surplus_bytes;
		if (regions[i].backend == ACTMEM_BACKEND_MEMFD &&
		    !pages_are_hugetlb(regions[i].pages))
			process->counted += regions[i].allocated_bytes;
	}
	free(regions);
	return i < count ? -ENOMEM : 0;
}

static void raise_surplus(struct process *process, uint64_t surplus)
{
	if (process->surplus < surplus)
		process->surplus = surplus;
}

static int add_published(void *context, int fd)
{
	struct process *process = context;
	struct stats_header header;
	uint64_t bytes;

	if (published_header(fd, &header)) {
		bytes = header.counters.region_bytes;
		process->can_return |= header.counters.spilling_stores > 0;
		if (header.limit_bytes && bytes > header.limit_bytes)
			raise_surplus(process, bytes - header.limit_bytes);
	}
	close(fd);
	return 0;
}

static void add_cgroup(struct process *process)
{
	struct cgroup_limit high;
	char path[32];
	double share;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", process->pid);
	if (!process->counted || !memory_high_read(&high, path, "/proc/self/mounts") ||
	    high.used_bytes <= high.limit_bytes)
		return;
	share = (double)process->counted / (double)high.used_bytes;
	raise_surplus(process, (uint64_t)(share * (double)(high.used_bytes - high.limit_bytes)));
}

static json_t *process_to_json(const struct process *process)
{
	return json_pack("{s:i, s:I, s:o, s:I, s:I, s:b}", "pid", process->pid,
			 "uid", (json_int_t)process->uid, "command", text_to_json(process->command),
			 "bytes", (json_int_t)process->bytes,
			 "surplus_bytes", (json_int_t)process->surplus,
			 "can_return", process->can_return);
}

json_t *reclaim_rows(int pid)
{
	struct processes processes = { 0 };
	json_t *rows = json_array();
	int err = add_regions(&processes, pid);
	size_t i;

	for (i = 0; i < processes.count && !err; i++) {
		struct process *process = &processes.list[i];

		err = published_walk(process->pid, &published_stats, add_published, process);
		add_cgroup(process);
		if (!err && process->surplus)
			rows = append_item(rows, process_to_json(process));
	}
	free(processes.list);
	if (!err)
		return rows;
	json_decref(rows);
	return NULL;
}

static char *cell_can(const json_t *row, const char *key, unsigned int flags)
{
	(void)flags;
	return strdup(json_is_true(json_object_get(row, key)) ? "yes" :
		      "no: none of its stores spills");
}

int reclaim_print(const json_t *rows)
{
	static const struct column columns[] = {
		{ "PID", "pid", cell_text, COLUMN_RIGHT },
		{ "USER", "uid", cell_user, COLUMN_LEFT },
		{ "COMMAND", "command", cell_text, COLUMN_LEFT },
		{ "BYTES", "bytes", cell_bytes, COLUMN_RIGHT },
		{ "TO RETURN", "surplus_bytes", cell_bytes, COLUMN_RIGHT },
		{ "CAN RETURN", "can_return", cell_can, COLUMN_LEFT },
	};

	return table_print(rows, columns, sizeof(columns) / sizeof(columns[0]), 0);
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

/* @left is what no process has returned. */
static void show_end(uint64_t left, bool is_shown)
{
	char *text = bytes_to_text(left, 0);

	if (is_shown && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	if (left)
		warnx("the limit is set, but %s were not returned; `actmem limit` shows the processes",
		      text ?: "some bytes");
	free(text);
}

bool reclaim_follow(int pid)
{
	uint64_t last = UINT64_MAX, since = clock_ns(), left;
	json_t *rows = reclaim_rows(pid);
	bool is_shown = false;

	while (rows && (left = sum_surplus(rows)) && clock_ns() - since < PATIENCE_NS) {
		if (!is_shown && reclaim_print(rows))
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
	if (!rows) {
		warnx("%s", strerror(ENOMEM));
		return false;
	}
	show_end(sum_surplus(rows), is_shown);
	json_decref(rows);
	return true;
}
