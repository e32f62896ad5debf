/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Processes and their descriptors, as /proc has them. The command links this file
 * too. Functions that can fail return 0 or -errno without words.
 */
#ifndef LIB_MACHINE_PROCFS_H
#define LIB_MACHINE_PROCFS_H

#include <dirent.h>
#include <stdbool.h>
#include <sys/types.h>

#include "actmem.h"
#include "base/base.h"

#define DESCRIPTOR_PATH_MAX	320

/* Reads the command of a process, of up to 15 letters; "" if it has ended. */
void process_command(int pid, char command[16]);

/* Tells the owner of a process; false: it has ended. */
bool process_owner(int pid, uid_t *uid);

/* Returns the number of a process in its own, innermost namespace; 0 if it has ended. */
int process_own_pid(int pid);

/* Returns the next process of /proc, or thread of a directory of threads; 0: none is left. */
int process_next(DIR *directory);

/* Errors that are this process's own, and tell nothing of another one. */
bool is_own_error(int error);

/* A walk through the descriptors of a process. */
struct process_links {
	int pid;
	DIR *directory;
	char path[DESCRIPTOR_PATH_MAX], link[PATH_TEXT_MAX];
};

/* Fails by own errors alone: what has ended, or is not ours to see, has no descriptors. */
int process_links_open(struct process_links *links, int pid);

/* The next one with a link that begins so; false: there is none. */
bool process_links_next(struct process_links *links, const char *prefix);

void process_links_close(struct process_links *links);

#endif /* LIB_MACHINE_PROCFS_H */
