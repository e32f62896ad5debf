// SPDX-License-Identifier: GPL-2.0
/*
 * What the regions of the machine have, in all and on each node, and what they
 * may have on a node. The memory cgroup is charged by the page allocator, with
 * __GFP_ACCOUNT.
 *
 * A node's limit is held against pages reserved, which are those that regions
 * have there and those that are about to be placed there; what is shown is
 * what regions have.
 */
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "actmem.h"

/**
 * struct node_total - pages on one node
 * @pages: of all regions
 * @lingering_pages: those of them that belong to lingering regions
 * @regions: regions that have any there
 * @poisoned_pages: in which the hardware has erred; it never falls
 * @lock: see there; held for an instant only
 * @reserved: pages that regions have or are about to get
 * @limit: pages that they may have
 */
struct node_total {
	atomic_long_t pages;
	atomic_long_t lingering_pages;
	atomic_long_t regions;
	atomic_long_t poisoned_pages;
	/* Protects what follows. */
	spinlock_t lock;
	unsigned long reserved;
	unsigned long limit;
};

static struct node_total *node_totals;
static atomic_long_t region_total;
static atomic_long_t lingering_region_total;

int actmem_account_init(void)
{
	int node;

	node_totals = kcalloc(nr_node_ids, sizeof(*node_totals), GFP_KERNEL);
	if (!node_totals)
		return -ENOMEM;
	for (node = 0; node < nr_node_ids; node++) {
		spin_lock_init(&node_totals[node].lock);
		node_totals[node].limit = ACTMEM_NO_LIMIT;
	}
	return 0;
}

void actmem_account_exit(void)
{
	kfree(node_totals);
}

/* For a page that is about to be placed there. False: that would be over the limit. */
bool actmem_node_reserve(int node)
{
	struct node_total *total = &node_totals[node];
	bool fits;

	spin_lock(&total->lock);
	fits = total->reserved < total->limit;
	total->reserved += fits;
	spin_unlock(&total->lock);
	return fits;
}

/* A page that was not placed after all, or that has gone. */
void actmem_node_unreserve(int node)
{
	spin_lock(&node_totals[node].lock);
	node_totals[node].reserved--;
	spin_unlock(&node_totals[node].lock);
}

/* Pages that could be reserved, ACTMEM_NO_LIMIT if there is none. */
unsigned long actmem_node_left(int node)
{
	struct node_total *total = &node_totals[node];
	unsigned long left = ACTMEM_NO_LIMIT;

	spin_lock(&total->lock);
	if (total->limit != ACTMEM_NO_LIMIT)
		left = total->limit - min(total->limit, total->reserved);
	spin_unlock(&total->lock);
	return left;
}

unsigned long actmem_node_limit(int node)
{
	return READ_ONCE(node_totals[node].limit);
}

void actmem_set_node_limit(int node, unsigned long pages)
{
	spin_lock(&node_totals[node].lock);
	WRITE_ONCE(node_totals[node].limit, pages);
	spin_unlock(&node_totals[node].lock);
}

void actmem_count_region(int change)
{
	atomic_long_add(change, &region_total);
}

/* As the last act of a region that goes: who then reads 0 finds all else done. */
void actmem_count_lingering_region(int change)
{
	atomic_long_add_return_release(change, &lingering_region_total);
}

static void count_lingering_pages(struct actmem_region *region, int node, long change)
{
	atomic_long_add(change, &node_totals[node].lingering_pages);
	actmem_user_count_lingering_pages(region->user, change);
}

/* A page of the region has come to be on a node, or has gone from there. */
static void count_page(struct actmem_region *region, int node, int change)
{
	struct node_total *total = &node_totals[node];
	unsigned long before = region->node_pages_held[node];

	lockdep_assert_held(&region->lock);
	region->pages_held += change;
	region->node_pages_held[node] += change;
	atomic_long_add(change, &total->pages);
	if (!before || !region->node_pages_held[node])
		atomic_long_add(change, &total->regions);
	actmem_user_count_pages(region->user, change);
	if (region->lingering)
		count_lingering_pages(region, node, change);
}

/* What was reserved is held. */
void actmem_count_page(struct actmem_region *region, const struct folio *folio)
{
	count_page(region, folio_nid(folio), 1);
}

void actmem_uncount_page(struct actmem_region *region, const struct folio *folio)
{
	count_page(region, folio_nid(folio), -1);
}

/* From now on its pages are lingering ones. */
void actmem_count_as_lingering(struct actmem_region *region)
{
	int node;

	lockdep_assert_held(&region->lock);
	region->lingering = true;
	for_each_node(node)
		count_lingering_pages(region, node, region->node_pages_held[node]);
}

unsigned long actmem_regions_total(void)
{
	return atomic_long_read(&region_total);
}

unsigned long actmem_lingering_regions_total(void)
{
	return atomic_long_read_acquire(&lingering_region_total);
}

unsigned long actmem_node_regions(int node)
{
	return atomic_long_read(&node_totals[node].regions);
}

u64 actmem_node_bytes(int node)
{
	return atomic_long_read(&node_totals[node].pages) * ACTMEM_PAGE_BYTES;
}

u64 actmem_node_lingering_bytes(int node)
{
	return atomic_long_read(&node_totals[node].lingering_pages) * ACTMEM_PAGE_BYTES;
}

/* It is in a region, or has been set apart. */
void actmem_count_poisoned_page(int node)
{
	atomic_long_inc(&node_totals[node].poisoned_pages);
}

u64 actmem_node_poisoned_bytes(int node)
{
	return atomic_long_read(&node_totals[node].poisoned_pages) * ACTMEM_PAGE_BYTES;
}
