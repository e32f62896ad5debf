// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Memory of the processes in malloc mode. They tell it in a file in memory, which may be
 * nonsense, or a device with that name: it is looked at before it is opened, and never
 * mapped. Nor does opening wait, as its owner may have a lease of it.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "machine/machine.h"
#include "mallocs.h"
#include "preload/preload.h"
#include "table.h"

#define TOLD_LINK	"/memfd:" TOLD_LABEL " (deleted)"
#define PATH_SIZE	64

static bool read_told(int pid, const char *path, struct told *told)
{
	char own_path[PATH_SIZE];
	struct statfs files;
	struct stat stat;
	bool good = false;
	int place, fd;

	place = open(path, O_PATH | O_CLOEXEC);
	if (place < 0)
		return false;
	if (!fstat(place, &stat) && S_ISREG(stat.st_mode) && stat.st_size == TOLD_BYTES &&
	    !fstatfs(place, &files) && files.f_type == TMPFS_MAGIC) {
		snprintf(own_path, sizeof(own_path), "/proc/self/fd/%d", place);
		fd = open(own_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		good = fd >= 0 && pread(fd, told, sizeof(*told), 0) == sizeof(*told) &&
		       told->magic == TOLD_MAGIC && told->version == TOLD_VERSION &&
		       told->pid == process_own_pid(pid);
		if (fd >= 0)
			close(fd);
	}
	close(place);
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

/* False: no memory. A process has one such file; a forked child may have its parent's as well. */
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
