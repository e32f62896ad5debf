// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reports the memory of processes in malloc mode. Each process publishes its counters in a memfd.
 * The memfd can contain invalid data, and the process can change it at any time. So this command
 * reads the memfd instead of mapping it.
 */
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>
#include "machine/machine.h"
#include "mallocs.h"
#include "table.h"
#include "watch/watch.h"

static json_t *counters_to_json(int pid, const struct malloc_counters *counters)
{
	char command[16];
	uid_t owner = 0;

	process_owner(pid, &owner);
	process_command(pid, command);
	return json_pack("{s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "pid", pid,
			 "uid", (json_int_t)owner, "command", text_to_json(command),
			 "blocks", limit_to_json(counters->blocks),
			 "block_bytes", limit_to_json(counters->block_bytes),
			 "pooled_bytes", limit_to_json(counters->pooled_bytes),
			 "mapped_bytes", limit_to_json(counters->mapped_bytes),
			 "blocks_total", limit_to_json(counters->blocks_total),
			 "refused_total", limit_to_json(counters->refused_total));
}

/* Reads the counters. Returns 1 on success, which ends published_walk(). */
static int read_counters(void *counters, int fd)
{
	bool good = pread(fd, counters, sizeof(struct malloc_counters), 0) ==
		    sizeof(struct malloc_counters);

	close(fd);
	return good;
}

/* Adds a row if the process publishes malloc counters. Returns false if out of memory. */
static bool add_process(json_t *mallocs, int pid)
{
	struct malloc_counters counters;

	return published_walk(pid, &published_malloc, read_counters, &counters) != 1 ||
	       !json_array_append_new(mallocs, counters_to_json(pid, &counters));
}

json_t *mallocs_to_json(void)
{
	json_t *mallocs = json_array();
	DIR *directory = opendir("/proc");
	int pid;

	while (mallocs && directory && (pid = process_next(directory))) {
		if (add_process(mallocs, pid))
			continue;
		json_decref(mallocs);
		mallocs = NULL;
	}
	if (directory)
		closedir(directory);
	return mallocs;
}

int mallocs_print(const json_t *mallocs, unsigned int flags)
{
	static const struct column columns[] = {
		{ "PID", "pid", cell_text, COLUMN_RIGHT },
		{ "USER", "uid", cell_user, COLUMN_LEFT },
		{ "COMMAND", "command", cell_text, COLUMN_LEFT },
		{ "MALLOC BLOCKS", "blocks", cell_text, COLUMN_RIGHT },
		{ "IN USE", "block_bytes", cell_bytes, COLUMN_RIGHT },
		{ "POOLED", "pooled_bytes", cell_bytes, COLUMN_RIGHT },
		{ "MAPPED", "mapped_bytes", cell_bytes, COLUMN_RIGHT },
		{ "REFUSED", "refused_total", cell_text, COLUMN_RIGHT },
	};

	if (!json_array_size(mallocs))
		return 0;
	putchar('\n');
	return table_print(mallocs, columns, sizeof(columns) / sizeof(columns[0]), flags);
}
