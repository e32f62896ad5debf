/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Why the driver could not have pages, in words: the thing, the number and the
 * knob.
 */
#include <stdint.h>
#include <unistd.h>

#include "cgroup.h"
#include "error.h"
#include "why.h"

#define SYSFS		"/sys/class/misc/actmem"
#define OTHER_NODES	" or allow other nodes with ACTMEM_ALLOW=node (actmem run --allow)"

static void tell_full_node(int error, const struct actmem_why *why, bool may_go_elsewhere)
{
	fail(error, "node %d has %s free of %s wanted; free memory there%s", why->node,
	     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted),
	     may_go_elsewhere ? OTHER_NODES : "");
	if (why->movable)
		fail_more(" (%s more are free there, but were onlined as movable, which cannot be pinned)",
			  BYTES_TEXT(why->movable));
}

static void tell_cgroup(int error, const struct actmem_why *why)
{
	char knob[CGROUP_FILE_MAX];

	memory_cgroup_available(knob);
	fail(error, "the memory cgroup has %s left of %s wanted; raise %s",
	     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted), *knob ? knob : "memory.max");
}

bool why_tell(int error, const struct actmem_why *why, bool may_go_elsewhere)
{
	switch (why->reason) {
	case ACTMEM_WHY_NODE_FULL:
		tell_full_node(error, why, may_go_elsewhere);
		return true;
	case ACTMEM_WHY_MEMLOCK:
		fail(error, "RLIMIT_MEMLOCK has %s left of %s wanted; raise it with `ulimit -l`",
		     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted));
		return true;
	case ACTMEM_WHY_MEMCG:
		tell_cgroup(error, why);
		return true;
	case ACTMEM_WHY_USER_LIMIT:
		fail(error, "the administrator's limit of the region's user has %s left of %s wanted; as root raise users/%u/limit_bytes or user_limit_bytes in " SYSFS,
		     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted), (unsigned int)geteuid());
		return true;
	case ACTMEM_WHY_NODE_LIMIT:
		fail(error, "the administrator's limit of node %d has %s left of %s wanted; as root raise " SYSFS "/node%d/limit_bytes%s",
		     why->node, BYTES_TEXT(why->available), BYTES_TEXT(why->wanted), why->node,
		     may_go_elsewhere ? OTHER_NODES : "");
		return true;
	case ACTMEM_WHY_MOUNT_LIMIT:
		fail(error, "size= of the mounted file system has %s left of %s wanted; remove files there, or as root raise it with `mount -o remount,size=`",
		     BYTES_TEXT(why->available), BYTES_TEXT(why->wanted));
		return true;
	case ACTMEM_WHY_CPUSET:
		fail(error, "node %d is outside this task's cpuset", why->node);
		return true;
	case ACTMEM_WHY_NO_MEMORY_NODE:
		fail(error, "node %d has no memory", why->node);
		return true;
	case ACTMEM_WHY_POISON:
		fail(error, "the hardware reported an error in memory of node %d: the 2 MiB at offset %llu of the region are lost; discard them for a fresh page",
		     why->node, (unsigned long long)why->wanted);
		return true;
	case ACTMEM_WHY_MISPLACED:
		fail(error, "a page came from node %d, which was not asked for; nothing was kept",
		     why->node);
		return true;
	default:
		return false;
	}
}
