// SPDX-License-Identifier: GPL-2.0
/*
 * What the regions of a mount have and may have. As the limits of users and nodes,
 * that of a mount (its option size=) is held against pages reserved, which are
 * those that regions have and those that they are about to get.
 */
#include <linux/slab.h>

#include "mount.h"

struct actmem_mount *actmem_mount_get(struct actmem_mount *mount)
{
	kref_get(&mount->ref);
	return mount;
}

static void mount_free(struct kref *ref)
{
	kfree(container_of(ref, struct actmem_mount, ref));
}

void actmem_mount_put(struct actmem_mount *mount)
{
	kref_put(&mount->ref, mount_free);
}

/* All of them or none; then ENOSPC. */
int actmem_mount_reserve(struct actmem_mount *mount, unsigned long pages, struct actmem_why *why)
{
	unsigned long left;

	spin_lock(&mount->lock);
	left = mount->limit - min(mount->limit, mount->reserved);
	if (pages <= left)
		mount->reserved += pages;
	spin_unlock(&mount->lock);
	if (pages <= left)
		return 0;
	why->reason = ACTMEM_WHY_MOUNT_LIMIT;
	why->node = NUMA_NO_NODE;
	why->wanted = pages * ACTMEM_PAGE_BYTES;
	why->available = left * ACTMEM_PAGE_BYTES;
	return -ENOSPC;
}

void actmem_mount_unreserve(struct actmem_mount *mount, unsigned long pages)
{
	spin_lock(&mount->lock);
	mount->reserved -= pages;
	spin_unlock(&mount->lock);
}

/* Both of one moment. */
void actmem_mount_usage(struct actmem_mount *mount, unsigned long *limit, unsigned long *reserved)
{
	spin_lock(&mount->lock);
	*limit = mount->limit;
	*reserved = mount->reserved;
	spin_unlock(&mount->lock);
}

/* EBUSY if its regions have more; how much they have is told in any case. */
int actmem_mount_set_limit(struct actmem_mount *mount, unsigned long pages,
			   unsigned long *reserved)
{
	int err = 0;

	spin_lock(&mount->lock);
	*reserved = mount->reserved;
	if (pages < mount->reserved)
		err = -EBUSY;
	else
		mount->limit = pages;
	spin_unlock(&mount->lock);
	return err;
}

/* Pages of the nodes that its regions come from, if they have no policy of their own. */
unsigned long actmem_mount_capacity(const struct actmem_mount *mount)
{
	bool some = mount->policy != ACTMEM_POLICY_PREFERRED && !nodes_empty(mount->nodes);
	unsigned long pages = 0;
	int node;

	for_each_node_state(node, N_MEMORY)
		if (!some || node_isset(node, mount->nodes))
			pages += actmem_node_capacity(node);
	return pages;
}
