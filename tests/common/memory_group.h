/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A memory cgroup for a test, in whichever version is there.
 */
#ifndef TESTS_MEMORY_GROUP_H
#define TESTS_MEMORY_GROUP_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

struct group {
	char mount[32];
	char folder[64];
	const char *limit_file;
};

static inline bool put_in_group(const char *folder, const char *file, const char *text)
{
	char path[128];
	bool written;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return written;
}

/* The mount is this process's own and goes with it. */
static inline bool make_group(struct group *group, uint64_t bytes)
{
	char limit[32];

	snprintf(group->mount, sizeof(group->mount), "/tmp/actmem-XXXXXX");
	if (!mkdtemp(group->mount) || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	/*
	 * The first version only where the controller is in use there already:
	 * moving it to another version with pages charged makes the kernel's
	 * counters underflow, of which it warns.
	 */
	group->limit_file = "memory.max";
	if (mount("cgroup", group->mount, "cgroup2", 0, NULL) ||
	    !put_in_group(group->mount, "cgroup.subtree_control", "+memory")) {
		umount2(group->mount, MNT_DETACH);
		group->limit_file = "memory.limit_in_bytes";
		if (mount("cgroup", group->mount, "cgroup", 0, "memory"))
			return false;
	}
	snprintf(group->folder, sizeof(group->folder), "%s/actmem-test-%d", group->mount, getpid());
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)bytes);
	return !mkdir(group->folder, 0755) && put_in_group(group->folder, group->limit_file, limit);
}

static inline void remove_group(const struct group *group)
{
	if (*group->folder)
		rmdir(group->folder);
	umount2(group->mount, MNT_DETACH);
	rmdir(group->mount);
}

static inline bool enter_group(const struct group *group)
{
	return put_in_group(group->folder, "cgroup.procs", "0");
}

#endif /* TESTS_MEMORY_GROUP_H */
