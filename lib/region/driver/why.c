/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Writes the error message if the driver cannot allocate pages. The driver gives the reason; the
 * message names the resource, the numbers and the setting to change.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/driver/driver.h"
#include "region/driver/why.h"
#include "region/names.h"

#define SYSFS		"/sys/class/misc/actmem"

static void tell_other_nodes(bool may_go_elsewhere)
{
	if (may_go_elsewhere)
		fail_more(" or allow other nodes with %s", KNOB(ALLOW_NODE));
}

static void tell_full_node(int error, const struct actmem_why *why, bool may_go_elsewhere)
{
	fail(error, "node %d has %s free, but %s are needed; free memory there", why->node,
	     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted));
	tell_other_nodes(may_go_elsewhere);
	if (why->movable)
		fail_more(" (%s more are free there, but only for movable pages, which cannot be pinned: in a movable zone or for CMA)",
			  BYTES_TEXT(why->movable));
}

static void tell_cgroup(int error, const struct actmem_why *why)
{
	char knob[CGROUP_FILE_MAX];

	memory_cgroup_available(knob);
	fail(error, "the memory cgroup has %s left, but %s are needed; raise %s",
	     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted), *knob ? knob : "memory.max");
}

/*
 * Appends how much of a limit is in use, perhaps by other processes. @others: text about users of
 * the limit that `actmem list` does not show, or "".
 */
static void tell_held(uint64_t limit, uint64_t left, const char *others)
{
	fail_more("; %s of the limit of %s are in use (`actmem list` shows the owners%s)",
		  BYTES_TEXT(limit > left ? limit - left : 0), BYTES_TEXT(limit), others);
}

/* An existing region has the limit of its creator. This process does not know that limit. */
static void tell_memlock(int error, const struct actmem_why *why, int fd)
{
	struct rlimit limit;

	fail(error, "RLIMIT_MEMLOCK has %s left, but %s are needed; raise it with `ulimit -l` in the process that creates the region; an existing region keeps its limit",
	     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted));
	if (fd < 0 && !getrlimit(RLIMIT_MEMLOCK, &limit))
		tell_held(limit.rlim_cur, why->available,
			  ", except the memory of io_uring, AF_XDP and perf");
}

static void tell_user_limit(int error, const struct actmem_why *why)
{
	uint64_t limit;

	fail(error, "the limit on the region's user has %s left, but %s are needed; as root raise it with `actmem limit --user SIZE` or in " SYSFS "/user_limit_bytes",
	     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted));
	if (!sysfile_value(&limit, SYSFS "/user_limit_bytes") && limit != UINT64_MAX)
		tell_held(limit, why->available, "");
}

static void tell_node_limit(int error, const struct actmem_why *why, bool may_go_elsewhere)
{
	uint64_t limit;

	fail(error, "the limit on node %d has %s left, but %s are needed; as root raise it with `actmem limit --nodes %d SIZE` or in " SYSFS "/node%d/limit_bytes",
	     why->node, BYTES_TEXT(why->available), BYTES_TEXT(why->wanted), why->node, why->node);
	tell_other_nodes(may_go_elsewhere);
	if (!sysfile_value(&limit, SYSFS "/node%d/limit_bytes", why->node) && limit != UINT64_MAX)
		tell_held(limit, why->available, "");
}

static void tell_dmem(int error, const struct actmem_why *why, bool may_go_elsewhere)
{
	struct cgroup_limit limit;
	char region[32];
	bool is_known;

	snprintf(region, sizeof(region), "actmem/node%d", why->node);
	is_known = dmem_limit_read(&limit, region, "/proc/self/cgroup", "/proc/self/mounts");
	fail(error, "the cgroup's limit on node %d has %s left, but %s are needed; raise %s in %s",
	     why->node, BYTES_TEXT(why->available), BYTES_TEXT(why->wanted), region,
	     is_known ? limit.file : "dmem.max");
	tell_other_nodes(may_go_elsewhere);
	if (is_known)
		fail_more("; %s of the limit of %s are in use", BYTES_TEXT(limit.used_bytes),
			  BYTES_TEXT(limit.limit_bytes));
}

void why_tell_mount(int fd)
{
	struct statfs sizes;
	struct stat stat;

	if (fd < 0 || fstat(fd, &stat) || fstatfs(fd, &sizes))
		return;
	fail_more(" (it is mounted at %s, and its files use %s of %s)", MOUNT_TEXT(stat.st_dev),
		  BYTES_TEXT((sizes.f_blocks - sizes.f_bfree) * (uint64_t)sizes.f_bsize),
		  BYTES_TEXT(sizes.f_blocks * (uint64_t)sizes.f_bsize));
}

bool why_tell(int error, const struct actmem_why *why, int fd, bool may_go_elsewhere)
{
	struct actmem_nodes cpuset;

	switch (why->reason) {
	case ACTMEM_WHY_NODE_FULL:
		tell_full_node(error, why, may_go_elsewhere);
		return true;
	case ACTMEM_WHY_MEMLOCK:
		tell_memlock(error, why, fd);
		return true;
	case ACTMEM_WHY_MEMCG:
		tell_cgroup(error, why);
		return true;
	case ACTMEM_WHY_USER_LIMIT:
		tell_user_limit(error, why);
		return true;
	case ACTMEM_WHY_NODE_LIMIT:
		tell_node_limit(error, why, may_go_elsewhere);
		return true;
	case ACTMEM_WHY_MOUNT_LIMIT:
		fail(error, "size= of the mounted file system has %s left, but %s are needed; remove files there, or as root raise it with `mount -o remount,size=`",
		     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted));
		why_tell_mount(fd);
		return true;
	case ACTMEM_WHY_DMEM:
		tell_dmem(error, why, may_go_elsewhere);
		return true;
	case ACTMEM_WHY_CPUSET:
		nodes_of_cpuset(&cpuset);
		fail(error, "node %d is outside this task's cpuset, which has %s; choose nodes with %s",
		     why->node, NODES_TEXT(&cpuset), KNOB(NODES));
		return true;
	case ACTMEM_WHY_NO_MEMORY_NODE:
		fail(error, "node %d has no memory; choose others with %s",
		     why->node, KNOB(NODES));
		return true;
	case ACTMEM_WHY_POISON:
		fail(error, "the hardware reported an error in memory of node %d: the 2 MiB at offset %llu of the region are lost; discard them for a fresh page",
		     why->node, (unsigned long long)why->wanted);
		return true;
	default:
		return false;
	}
}
