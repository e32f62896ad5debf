// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Memory of the processes in malloc mode. Each publishes its figures in a file in memory. Its
 * contents may be garbage, so this command never maps it.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "machine/machine.h"
#include "mallocs.h"
#include "preload/preload.h"
#include "table.h"
#include "watch/published.h"

#define TOLD_LINK	"/memfd:" TOLD_LABEL " (deleted)"

static bool read_told(int pid, const char *path, struct told *told)
{
	int fd = memory_file_open(path);
	struct stat stat;
	bool good;

	if (fd < 0)
		return false;
	good = !fstat(fd, &stat) && stat.st_size == TOLD_BYTES &&
	       pread(fd, told, sizeof(*told), 0) == sizeof(*told) &&
	       told->magic == TOLD_MAGIC && told->version == TOLD_VERSION &&
	       told->pid == process_own_pid(pid);
	close(fd);
	return good;
}

static json_t *told_to_json(int pid, struct told *told)
{
	char command[16];
	uid_t owner = 0;

	process_owner(pid, &owner);
	process_command(pid, command);
	return json_pack("{s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "pid", pid,
			 "uid", (json_int_t)owner, "command", text_to_json(command),
			 "blocks", limit_to_json(told->blocks),
			 "block_bytes", limit_to_json(told->block_bytes),
			 "pooled_bytes", limit_to_json(told->pooled_bytes),
			 "mapped_bytes", limit_to_json(told->mapped_bytes),
			 "blocks_total", limit_to_json(told->blocks_total),
			 "refused_total", limit_to_json(told->refused_total));
}

/*
 * Returns false if out of memory. A process has one such file; a forked child may also have its
 * parent's.
 */
static bool add_process(json_t *mallocs, int pid)
{
	struct process_links links;
	struct told told;
	bool found = false;

	process_links_open(&links, pid);
	while (!found && process_links_next(&links, TOLD_LINK))
		found = read_told(pid, links.path, &told);
	process_links_close(&links);
	return !found || !json_array_append_new(mallocs, told_to_json(pid, &told));
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
