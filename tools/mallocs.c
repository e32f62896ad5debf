// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What the processes in malloc mode have. They tell it in a file in memory, which
 * may be nonsense, or no such file but a device with its name: it is not opened
 * before that is seen, nor mapped. Nor is it waited for, as its owner may have a
 * lease of it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "../lib/preload/told.h"
#include "../lib/sysfile.h"
#include "mallocs.h"
#include "table.h"

#define TOLD_LINK	"/memfd:" TOLD_LABEL " (deleted)"
#define PATH_SIZE	64

static bool has_link(int pid, const char *name)
{
	char path[PATH_SIZE + 256], link[sizeof(TOLD_LINK) + 1];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, name);
	length = readlink(path, link, sizeof(link));
	return length == sizeof(TOLD_LINK) - 1 && !memcmp(link, TOLD_LINK, (size_t)length);
}

static bool read_told(int pid, const char *name, struct told *told)
{
	char path[PATH_SIZE + 256];
	struct statfs files;
	struct stat stat;
	bool good = false;
	int place, fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, name);
	place = open(path, O_PATH | O_CLOEXEC);
	if (place < 0)
		return false;
	if (!fstat(place, &stat) && S_ISREG(stat.st_mode) && stat.st_size == TOLD_BYTES &&
	    !fstatfs(place, &files) && files.f_type == TMPFS_MAGIC) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
		fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
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
	char path[PATH_SIZE], command[16];
	struct stat owner;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &owner))
		owner.st_uid = 0;
	process_command(pid, command);
	return json_pack("{s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "pid", pid,
			 "uid", (json_int_t)owner.st_uid, "command", text_to_json(command),
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
	char path[PATH_SIZE];
	struct dirent *entry;
	struct told told;
	DIR *directory;
	bool good = true;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		if (!has_link(pid, entry->d_name) || !read_told(pid, entry->d_name, &told))
			continue;
		good = !json_array_append_new(mallocs, told_to_json(pid, &told));
		break;
	}
	if (directory)
		closedir(directory);
	return good;
}

json_t *mallocs_to_json(void)
{
	json_t *mallocs = json_array();
	DIR *directory = opendir("/proc");
	struct dirent *entry;

	while (mallocs && directory && (entry = readdir(directory))) {
		if (*entry->d_name < '1' || *entry->d_name > '9' ||
		    add_process(mallocs, atoi(entry->d_name)))
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
		{ "PID", "pid", cell_text, true },
		{ "USER", "uid", cell_user, false },
		{ "COMMAND", "command", cell_text, false },
		{ "MALLOC BLOCKS", "blocks", cell_text, true },
		{ "IN USE", "block_bytes", cell_bytes, true },
		{ "POOLED", "pooled_bytes", cell_bytes, true },
		{ "MAPPED", "mapped_bytes", cell_bytes, true },
		{ "REFUSED", "refused_total", cell_text, true },
	};

	if (!json_array_size(mallocs))
		return 0;
	putchar('\n');
	return table_print(mallocs, columns, sizeof(columns) / sizeof(columns[0]), flags);
}
