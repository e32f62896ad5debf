/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The memory cgroup that this process is charged to, version 1 or 2. */
#ifndef ACTMEM_CGROUP_H
#define ACTMEM_CGROUP_H

#include <limits.h>
#include <stdint.h>

struct memory_cgroup {
	int version;			/* 0: none */
	char path[PATH_MAX];		/* of the process, within the hierarchy */
	/*
	 * The limit with the least room left, of the cgroup itself or of an
	 * ancestor, and what is used of it. No limit: UINT64_MAX, and the
	 * cgroup's own use.
	 */
	uint64_t limit_bytes;
	uint64_t used_bytes;
};

/*
 * Reads files with the format of /proc/self/cgroup and /proc/self/mounts.
 * 0 or a negative errno; no memory cgroup is not an error.
 */
int memory_cgroup_read(struct memory_cgroup *cgroup, const char *cgroup_file,
		       const char *mounts_file);

#endif
