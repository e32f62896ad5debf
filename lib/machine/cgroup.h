/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The memory and dmem cgroups that this process is charged to, version 1 or 2. The
 * command links this file too, so it uses nothing but sysfile.h.
 */
#ifndef LIB_MACHINE_CGROUP_H
#define LIB_MACHINE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Longer ones are as if they were not there. */
#define CGROUP_PATH_MAX	1024
#define CGROUP_FILE_MAX	(CGROUP_PATH_MAX + 32)

struct memory_cgroup {
	int version;			/* 0: none */
	char path[CGROUP_PATH_MAX];		/* of the process, within the hierarchy */
	/*
	 * The limit that leaves least, of the cgroup itself or of an ancestor,
	 * and what is used of it. No limit: UINT64_MAX, and the cgroup's own
	 * use.
	 */
	char limit_file[CGROUP_FILE_MAX];	/* "" without a limit */
	uint64_t limit_bytes;
	uint64_t used_bytes;
	uint64_t available_bytes;	/* what its page cache can give up included */
};

/*
 * Reads files with the format of /proc/self/cgroup and /proc/self/mounts.
 * 0 or a negative errno, without words; no memory cgroup is not an error.
 */
int memory_cgroup_read(struct memory_cgroup *cgroup, const char *cgroup_file,
		       const char *mounts_file);

/*
 * Returns what the limits leave to this process: UINT64_MAX if there are none, or if
 * they cannot be read. @limit_file: the knob, or "".
 */
uint64_t memory_cgroup_available(char limit_file[CGROUP_FILE_MAX]);

struct dmem_limit {
	char file[CGROUP_FILE_MAX];
	uint64_t limit_bytes;
	uint64_t used_bytes;
};

/*
 * Finds the limit that leaves this process least of a region of the dmem controller, as
 * "actmem/node0". False: there is none, or it cannot be read.
 */
bool dmem_limit_read(struct dmem_limit *limit, const char *region, const char *cgroup_file,
		     const char *mounts_file);

#endif /* LIB_MACHINE_CGROUP_H */
