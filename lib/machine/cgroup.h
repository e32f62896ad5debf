/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The memory, dmem and hugetlb cgroups that this process is charged to, version 1 or 2. The command
 * `actmem` links cgroup.c, too, so cgroup.c uses only sysfile.h.
 */
#ifndef LIB_MACHINE_CGROUP_H
#define LIB_MACHINE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* If the path of a cgroup is longer than this, the functions use the mount point instead. */
#define CGROUP_PATH_MAX	1024
#define CGROUP_FILE_MAX	(CGROUP_PATH_MAX + 32)

struct cgroup_limit {
	char file[CGROUP_FILE_MAX];	/* file of the limit; "" if there is no limit */
	uint64_t limit_bytes;
	uint64_t used_bytes;
	uint64_t available_bytes;	/* left below the limit; page cache counts as free */
};

struct memory_cgroup {
	int version;				/* 0: none */
	char path[CGROUP_PATH_MAX];		/* path of the process's cgroup in the hierarchy */
	/*
	 * The tightest limit of the cgroup itself and its ancestors. Without a limit, limit_bytes
	 * and available_bytes are UINT64_MAX, and used_bytes is the usage of the cgroup itself.
	 */
	struct cgroup_limit tightest;
};

/*
 * Reads the memory cgroup, from files in the format of /proc/self/cgroup and /proc/self/mounts.
 * Returns 0 or a negative errno, without an error message. A missing memory cgroup is not an
 * error.
 */
int memory_cgroup_read(struct memory_cgroup *cgroup, const char *cgroup_file,
		       const char *mounts_file);

/*
 * Returns how many bytes are left below the tightest limit on this process; UINT64_MAX if there is
 * no limit, or if it cannot be read. Writes the path of this limit's file, or "", to @limit_file.
 */
uint64_t memory_cgroup_available(char limit_file[CGROUP_FILE_MAX]);

/*
 * Finds the tightest dmem limit on this process for @region, such as "actmem/node0". Returns false
 * if there is none, or if it cannot be read.
 */
bool dmem_limit_read(struct cgroup_limit *limit, const char *region, const char *cgroup_file,
		     const char *mounts_file);

/* The folder of a memory cgroup (version 2), for callers that read its limits often. */
struct memory_folder {
	char path[CGROUP_PATH_MAX];	/* "" if there is none, or if it cannot be found */
	size_t mount_length;
};

void memory_folder_find(struct memory_folder *folder, const char *cgroup_file,
			const char *mounts_file);

/*
 * Finds, in this folder and its parents, the memory.high limit that leaves the fewest bytes. If
 * several limits are exceeded, finds the innermost. The result's used_bytes does not include page
 * cache, which the kernel drops first. Returns false if there is no such limit, or if it cannot be
 * read. If no memory.high is set, the call reads no other file in these folders.
 */
bool memory_high_read(struct cgroup_limit *limit, const struct memory_folder *place);

/*
 * Finds the tightest hugetlb limit on this process for pages of 2 MiB or 1 GiB. The kernel has
 * separate limits of used and of reserved pages; the call considers both. Returns false if there is
 * no limit, or if it cannot be read. In Kubernetes, a pod that requests no huge pages has a limit
 * of 0.
 */
bool hugetlb_limit_read(struct cgroup_limit *limit, uint64_t page_bytes, const char *cgroup_file,
			const char *mounts_file);

#endif /* LIB_MACHINE_CGROUP_H */
