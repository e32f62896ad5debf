// SPDX-License-Identifier: GPL-2.0
/*
 * Limits by cgroup, where the kernel has the dmem controller: each node is a region of
 * its, "actmem/nodeN". A page of the node, a pool's too, is charged to the dmem cgroup of
 * the task that has it made, from before it is there until it is gone: whatever becomes
 * of the task, and of the cgroup.
 */
#include <linux/cgroup_dmem.h>
#include <linux/slab.h>

#include "actmem.h"

/* By node; NULL of one that cannot be. */
static struct dmem_cgroup_region **nodes;

/* Of every possible node, as memory may be brought online later. */
int actmem_dmem_init(void)
{
	int node;

	nodes = kcalloc(nr_node_ids, sizeof(*nodes), GFP_KERNEL);
	if (!nodes)
		return -ENOMEM;
	for_each_node(node) {
		u64 pages = max(actmem_node_capacity(node), 1UL);
		struct dmem_cgroup_region *region;

		region = dmem_cgroup_register_region(pages * ACTMEM_PAGE_BYTES, "actmem/node%d",
						     node);
		if (IS_ERR(region)) {
			actmem_dmem_exit();
			return PTR_ERR(region);
		}
		nodes[node] = region;
	}
	return 0;
}

void actmem_dmem_exit(void)
{
	int node;

	for_each_node(node)
		dmem_cgroup_unregister_region(nodes[node]);
	kfree(nodes);
}

int actmem_dmem_region_init(struct actmem_region *region)
{
	region->charges = kvcalloc(region->page_count, sizeof(*region->charges),
				   GFP_KERNEL_ACCOUNT);
	return region->charges ? 0 : -ENOMEM;
}

void actmem_dmem_region_exit(struct actmem_region *region)
{
	kvfree(region->charges);
}

/*
 * For the page of the slot, which only the caller makes, on this node. EAGAIN if the limit
 * of the task's cgroup, or of one above it, does not let it be.
 */
int actmem_dmem_charge(struct actmem_region *region, unsigned long index, int node)
{
	return dmem_cgroup_try_charge(nodes[node], ACTMEM_PAGE_BYTES, &region->charges[index],
				      NULL);
}

/* A page that the slot has no more, or has not got after all. */
void actmem_dmem_uncharge(struct actmem_region *region, unsigned long index)
{
	dmem_cgroup_uncharge(region->charges[index], ACTMEM_PAGE_BYTES);
	region->charges[index] = NULL;
}
