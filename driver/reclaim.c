// SPDX-License-Identifier: GPL-2.0
/*
 * Asks the owners of regions to give pages back, if the dmem.max of a cgroup falls below the usage.
 * The driver takes no pages away. The driver reports a surplus (pages to give back) for each
 * region, and the task that writes dmem.max waits for the owners. Since Linux 7.3, the kernel calls
 * reclaim_pages() in that task. dmem_cgroup_unregister_region() waits until such calls have
 * returned.
 */
#include <linux/cgroup_dmem.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>

#include "actmem.h"
#include "compat/compat.h"

/* How long one call waits for the owners. After ENOSPC, the kernel repeats the call 16 times. */
#define RECLAIM_WAIT	msecs_to_jiffies(100)

/* The kernel does not report that dmem.max rises again, so a request ends after this time. */
#define REQUEST_LASTS	(10 * HZ)

/*
 * Returns how many pages of all regions are charged to the cgroup of @pool and its descendants. If
 * @total is not 0, also asks each region for its share of @wanted pages. @total is then the result
 * of an earlier call.
 */
static unsigned long reclaim_ask(struct dmem_cgroup_pool_state *pool, u64 wanted,
				 unsigned long total)
{
	struct actmem_region *region;
	unsigned long pages, sum = 0;
	u64 id = 0;

	while ((region = actmem_region_next(&id))) {
		pages = actmem_dmem_pages(region, pool);
		sum += pages;
		if (pages && total) {
			spin_lock(&region->lock);
			region->asked_pages = min(DIV_ROUND_UP(wanted * pages, total), pages);
			region->asked_until = jiffies + REQUEST_LASTS;
			spin_unlock(&region->lock);
		}
		actmem_region_put(region);
	}
	return sum;
}

/*
 * Asks the owners of regions for pages, and waits. Returns 0 if an owner gave pages back, ENOSPC if
 * no owner did, or EINTR after a signal.
 */
static int reclaim_pages(struct dmem_cgroup_pool_state *pool, u64 bytes, void *unused)
{
	unsigned long total = reclaim_ask(pool, 0, 0);

	reclaim_ask(pool, DIV_ROUND_UP(bytes, ACTMEM_PAGE_BYTES), total);
	wake_up_poll(&actmem_limit_changed, EPOLLPRI);
	schedule_timeout_interruptible(RECLAIM_WAIT);
	if (signal_pending(current))
		return -EINTR;
	/*
	 * Count only this cgroup's pages: pages of other cgroups would make the writer of dmem.max
	 * wait longer.
	 */
	return reclaim_ask(pool, 0, 0) < total ? 0 : -ENOSPC;
}

const struct dmem_cgroup_ops actmem_reclaim_operations = {
	.reclaim = reclaim_pages,
};
