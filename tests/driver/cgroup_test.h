/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* A control group of a test's own, and what it is charged with. */
#ifndef CGROUP_TEST_H
#define CGROUP_TEST_H

#include <sys/mount.h>

#include "driver_test.h"

#define CGROUP_ROOT	"/tmp/cgroup"
#define CGROUP		CGROUP_ROOT "/one"

/* With controllers such as "+memory +cpuset". */
static inline int make_cgroup(const char *controllers)
{
	int err;

	mkdir("/tmp", 0755);
	mkdir(CGROUP_ROOT, 0755);
	if (mount("cgroup", CGROUP_ROOT, "cgroup2", 0, NULL))
		return -errno;
	err = put(CGROUP_ROOT "/cgroup.subtree_control", controllers);
	return err ? err : mkdir(CGROUP, 0755) ? -errno : 0;
}

static inline int enter_cgroup(void)
{
	return put(CGROUP "/cgroup.procs", "0");
}

/* A process that has been waited for may be in it for a moment longer. */
static inline int remove_cgroup(void)
{
	while (rmdir(CGROUP)) {
		if (errno != EBUSY)
			return -errno;
		usleep(1000);
	}
	return umount(CGROUP_ROOT) ? -errno : 0;
}

static inline long cgroup_bytes(void)
{
	return number_in(CGROUP "/memory.current");
}

/*
 * Huge pages that it has been charged with since it was charged with so many
 * bytes. The kernel charges small pages ahead, and takes that back when it likes.
 */
static inline long cgroup_pages_since(long bytes)
{
	return (cgroup_bytes() - bytes + (long)PAGE_BYTES / 2) / (long)PAGE_BYTES;
}

#endif
