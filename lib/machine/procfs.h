/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads processes and their descriptors from /proc. The command `actmem` links procfs.c, too.
 * Functions that can fail return 0, or -errno without an error message.
 */
#ifndef LIB_MACHINE_PROCFS_H
#define LIB_MACHINE_PROCFS_H

#include <dirent.h>
#include <stdbool.h>
#include <sys/types.h>

#include "actmem.h"
#include "base/base.h"

#define DESCRIPTOR_PATH_MAX	320

/* Reads the command name of a process, up to 15 bytes; "" if the process has ended. */
void process_command(int pid, char command[16]);

/* Reads the owner of a process. Returns false if the process has ended. */
bool process_owner(int pid, uid_t *uid);

/* Returns the pid of a process in its innermost pid namespace; 0 if the process has ended. */
int process_own_pid(int pid);

/* Returns the next process in /proc, or the next thread in a task directory; 0 at the end. */
int process_next(DIR *directory);

/* Returns true if @error means that this process cannot get another descriptor or more memory. */
bool is_own_error(int error);

/* A walk through the descriptors of a process. */
struct process_links {
	int pid;
	DIR *directory;
	char path[DESCRIPTOR_PATH_MAX], link[PATH_TEXT_MAX];
};

/*
 * Begins a walk. If the call fails, is_own_error() returns true for the error. If process @pid has
 * ended, or the caller may not inspect it, the walk finds no descriptors.
 */
int process_links_open(struct process_links *links, int pid);

/* Finds the next descriptor whose link begins with @prefix. Returns false if there is none. */
bool process_links_next(struct process_links *links, const char *prefix);

void process_links_close(struct process_links *links);

#endif /* LIB_MACHINE_PROCFS_H */
