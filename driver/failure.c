// SPDX-License-Identifier: GPL-2.0
/*
 * Telling that memory could not be had: tracers are told always, and the
 * kernel's log where there is no caller to return an error to.
 */
#include <linux/ratelimit.h>
#include <linux/sched.h>
#include <linux/user_namespace.h>

#include "actmem.h"
#include "trace.h"

#define WORDS_MAX	256

/* For every call that wanted pages, whatever has become of it. */
void actmem_alloc_failed(const struct actmem_region *region, int err, const struct actmem_why *why)
{
	if (err && (why->reason != ACTMEM_WHY_NONE || err == -ENOMEM))
		trace_actmem_alloc_fail(region, err, why);
}

/* Who was short of what, and what helps. */
static void explain(char words[WORDS_MAX], const struct actmem_region *region, int err,
		    const struct actmem_why *why)
{
	uid_t uid = from_kuid(&init_user_ns, region->owner);
	int length;

	switch (why->reason) {
	case ACTMEM_WHY_NODE_FULL:
		length = scnprintf(words, WORDS_MAX,
				   "node %d has no huge page left; free memory there, or hold some ready in its pool_bytes",
				   why->node);
		if (why->movable)
			scnprintf(words + length, WORDS_MAX - length,
				  " (%llu bytes more are free there, but were onlined as movable, which cannot be pinned)",
				  why->movable);
		break;
	case ACTMEM_WHY_MEMLOCK:
		scnprintf(words, WORDS_MAX,
			  "RLIMIT_MEMLOCK has %llu bytes left of %llu wanted; raise it (ulimit -l) for the process that makes the region",
			  why->available, why->wanted);
		break;
	case ACTMEM_WHY_MEMCG:
		scnprintf(words, WORDS_MAX,
			  "the memory cgroup is full; raise its memory.max, or the node's pool_bytes, which is not charged");
		break;
	case ACTMEM_WHY_USER_LIMIT:
		scnprintf(words, WORDS_MAX,
			  "user %u has %llu bytes left of %llu wanted; raise /sys/class/misc/actmem/users/%u/limit_bytes",
			  uid, why->available, why->wanted, uid);
		break;
	case ACTMEM_WHY_NODE_LIMIT:
		scnprintf(words, WORDS_MAX,
			  "regions may have no more of node %d; raise /sys/class/misc/actmem/node%d/limit_bytes",
			  why->node, why->node);
		break;
	case ACTMEM_WHY_MOUNT_LIMIT:
		scnprintf(words, WORDS_MAX,
			  "its mount has %llu bytes left of %llu wanted; raise its size= by mount -o remount",
			  why->available, why->wanted);
		break;
	case ACTMEM_WHY_CPUSET:
		scnprintf(words, WORDS_MAX,
			  "node %d is outside the task's cpuset; add it to cpuset.mems", why->node);
		break;
	case ACTMEM_WHY_NO_MEMORY_NODE:
		scnprintf(words, WORDS_MAX, "node %d has no memory; bring some online", why->node);
		break;
	default:
		scnprintf(words, WORDS_MAX, "error %d", err);
	}
}

/* The task gets a signal, which does not say why. If it has been killed, nobody asks. */
void actmem_fault_failed(const struct actmem_region *region, unsigned long index, int err,
			 const struct actmem_why *why)
{
	/* One line for all that fail together, as a job's processes do. */
	static DEFINE_RATELIMIT_STATE(limit, DEFAULT_RATELIMIT_INTERVAL, 1);
	char words[WORDS_MAX];

	if (err == -EINTR || !__ratelimit(&limit))
		return;
	explain(words, region, err, why);
	pr_warn("actmem: %s[%d] cannot have the page that it touches (SIGBUS): region %llu '%s', offset %llu: %s\n",
		current->comm, task_tgid_nr(current), region->id, region->name,
		index * ACTMEM_PAGE_BYTES, words);
}

void actmem_pool_stalled(int node, unsigned long held, unsigned long target)
{
	pr_warn("actmem: the pool of node %d has %llu bytes of %llu and finds no more free; free memory there, or lower its pool_bytes\n",
		node, held * ACTMEM_PAGE_BYTES, target * ACTMEM_PAGE_BYTES);
}
