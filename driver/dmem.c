// SPDX-License-Identifier: GPL-2.0
/*
 * Limits by cgroup, if the kernel has the dmem controller. The controller calls each node a region,
 * with the name "actmem/nodeN". The driver charges each page, including those from a pool, to the
 * dmem cgroup of the task that allocates it. The charge lasts from before the allocation until the
 * page leaves its slot, even if the task or the cgroup ends earlier.
 */
#include <linux/cgroup_dmem.h>
#include <linux/rcupdate_wait.h>

#include "actmem.h"
#include "compat/compat.h"

/* Registers every possible node, because a node may get memory later. */
int actmem_dmem_init(void)
{
	int node;

	for_each_node(node) {
		u64 pages = max(actmem_node_capacity(node), 1UL);
		struct dmem_cgroup_region *region;

		region = dmem_cgroup_register_region(ACTMEM_DMEM_INIT(pages * ACTMEM_PAGE_BYTES,
								      &actmem_reclaim_operations),
						     "actmem/node%d", node);
		if (IS_ERR(region)) {
			actmem_dmem_exit();
			return PTR_ERR(region);
		}
		actmem_nodes[node].dmem = region;
	}
	return 0;
}

void actmem_dmem_exit(void)
{
	int node;

	for_each_node(node)
		dmem_cgroup_unregister_region(actmem_nodes[node].dmem);
}

/*
 * Charges a page of @node, for slot @index, to the task's dmem cgroup. The caller has claimed the
 * slot. Returns EAGAIN if the charge would exceed a limit of the task's cgroup or of the cgroup's
 * ancestors.
 */
int actmem_dmem_charge(struct actmem_region *region, unsigned long index, int node)
{
	struct dmem_cgroup_pool_state *charge;
	int err = dmem_cgroup_try_charge(actmem_nodes[node].dmem, ACTMEM_PAGE_BYTES, &charge, NULL);

	if (err)
		return err;
	err = xa_err(xa_store(&region->charges, index, charge, GFP_KERNEL_ACCOUNT));
	if (err)
		dmem_cgroup_uncharge(charge, ACTMEM_PAGE_BYTES);
	return err;
}

/* Uncharges a page that leaves its slot, or that could not be allocated. */
void actmem_dmem_uncharge(struct actmem_region *region, unsigned long index)
{
	dmem_cgroup_uncharge(xa_erase(&region->charges, index), ACTMEM_PAGE_BYTES);
}

/*
 * Returns how many pages of the region are charged to the cgroup of @pool or its descendants. Does
 * not count pages that dmem.min protects from reclaim.
 */
unsigned long actmem_dmem_pages(struct actmem_region *region, struct dmem_cgroup_pool_state *pool)
{
	struct dmem_cgroup_pool_state *charge, *last = NULL;
	bool is_counted = false, is_low;
	unsigned long i, pages = 0;

	/*
	 * A charge can end at any time, but the kernel frees the charge only after a grace period.
	 */
	rcu_read_lock();
	xa_for_each(&region->charges, i, charge) {
		if (charge != last)
			is_counted = dmem_cgroup_state_evict_valuable(pool, charge, true, &is_low);
		last = charge;
		pages += is_counted;
		cond_resched_rcu();
	}
	rcu_read_unlock();
	return pages;
}
