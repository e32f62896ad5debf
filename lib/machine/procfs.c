/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads processes and their descriptors from /proc.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine/procfs.h"
#include "machine/sysfile.h"

void process_command(int pid, char command[16])
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (pid <= 0 || sysfile_read(path, command, 16))
		command[0] = '\0';
	command[strcspn(command, "\n")] = '\0';
}

bool process_owner(int pid, uid_t *uid)
{
	struct stat owner;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &owner))
		return false;
	*uid = owner.st_uid;
	return true;
}

int process_own_pid(int pid)
{
	char path[64], text[4096];
	char *line, *end;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	if (sysfile_read(path, text, sizeof(text)))
		return 0;
	line = strstr(text, "\nNSpid:");
	end = line ? strchr(line + 1, '\n') : NULL;
	if (!end)
		return pid;
	*end = '\0';
	line = strrchr(line, '\t');
	return line ? atoi(line) : pid;
}

int process_next(DIR *directory)
{
	struct dirent *entry;

	while ((entry = readdir(directory)))
		if (*entry->d_name >= '1' && *entry->d_name <= '9')
			return atoi(entry->d_name);
	return 0;
}

bool is_own_error(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

int process_links_open(struct process_links *links, int pid)
{
	links->pid = pid;
	snprintf(links->path, sizeof(links->path), "/proc/%d/fd", pid);
	links->directory = opendir(links->path);
	return !links->directory && is_own_error(-errno) ? -errno : 0;
}

bool process_links_next(struct process_links *links, const char *prefix)
{
	struct dirent *entry;
	ssize_t length;

	while (links->directory && (entry = readdir(links->directory))) {
		snprintf(links->path, sizeof(links->path), "/proc/%d/fd/%s", links->pid,
			 entry->d_name);
		length = readlink(links->path, links->link, sizeof(links->link) - 1);
		if (length <= 0)
			continue;
		links->link[length] = '\0';
		if (!strncmp(links->link, prefix, strlen(prefix)))
			return true;
	}
	return false;
}

void process_links_close(struct process_links *links)
{
	if (links->directory)
		closedir(links->directory);
}
