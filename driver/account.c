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
 * struct node_total - small pages on one node, as those of imported regions may
 *	be on several
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

/* For small pages about to be placed there. False: that would be over the limit. */
bool actmem_node_reserve_small(int node, unsigned long pages)
{
	struct node_total *total = &node_totals[node];
	bool fits;

	spin_lock(&total->lock);
	fits = pages <= total->limit - min(total->limit, total->reserved);
	if (fits)
		total->reserved += pages;
	spin_unlock(&total->lock);
	return fits;
}

/* Those that were not placed after all, or that have gone. */
void actmem_node_unreserve_small(int node, unsigned long pages)
{
	spin_lock(&node_totals[node].lock);
	node_totals[node].reserved -= pages;
	spin_unlock(&node_totals[node].lock);
}

/* The same of one page. */
bool actmem_node_reserve(int node)
{
	return actmem_node_reserve_small(node, HPAGE_PMD_NR);
}

void actmem_node_unreserve(int node)
{
	actmem_node_unreserve_small(node, HPAGE_PMD_NR);
}

/* Pages that could be reserved, ACTMEM_NO_LIMIT if there is none. */
unsigned long actmem_node_left(int node)
{
	struct node_total *total = &node_totals[node];
	unsigned long left = ACTMEM_NO_LIMIT;

	spin_lock(&total->lock);
	if (total->limit != ACTMEM_NO_LIMIT)
		left = (total->limit - min(total->limit, total->reserved)) >> ACTMEM_PAGE_ORDER;
	spin_unlock(&total->lock);
	return left;
}

unsigned long actmem_node_limit(int node)
{
	unsigned long limit = READ_ONCE(node_totals[node].limit);

	return limit == ACTMEM_NO_LIMIT ? limit : limit >> ACTMEM_PAGE_ORDER;
}

void actmem_set_node_limit(int node, unsigned long pages)
{
	/* A number of bytes was made pages of, so that this does not overflow. */
	if (pages != ACTMEM_NO_LIMIT)
		pages = ACTMEM_SMALL_PAGES(pages);
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

/* Small pages of the region have come to be on a node, or have gone from there. */
void actmem_count_on_node(struct actmem_region *region, int node, long change)
{
	struct node_total *total = &node_totals[node];
	unsigned long before = region->node_small_pages[node];

	lockdep_assert_held(&region->lock);
	region->node_small_pages[node] += change;
	atomic_long_add(change, &total->pages);
	if (!before)
		atomic_long_inc(&total->regions);
	if (!region->node_small_pages[node])
		atomic_long_dec(&total->regions);
	if (region->lingering)
		atomic_long_add(change, &total->lingering_pages);
}

/* What was reserved is held, or is no more. */
void actmem_count_held(struct actmem_region *region, long change)
{
	lockdep_assert_held(&region->lock);
	region->pages_held += change;
	actmem_user_count_pages(region->user, change);
	if (region->lingering)
		actmem_user_count_lingering_pages(region->user, change);
}

void actmem_count_page(struct actmem_region *region, const struct folio *folio)
{
	actmem_count_held(region, 1);
	actmem_count_on_node(region, folio_nid(folio), HPAGE_PMD_NR);
}

void actmem_uncount_page(struct actmem_region *region, const struct folio *folio)
{
	actmem_count_held(region, -1);
	actmem_count_on_node(region, folio_nid(folio), -HPAGE_PMD_NR);
}

/* From now on its pages are lingering ones. */
void actmem_count_as_lingering(struct actmem_region *region)
{
	int node;

	lockdep_assert_held(&region->lock);
	region->lingering = true;
	actmem_user_count_lingering_pages(region->user, region->pages_held);
	for_each_node(node)
		atomic_long_add(region->node_small_pages[node], &node_totals[node].lingering_pages);
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
	return (u64)atomic_long_read(&node_totals[node].pages) << PAGE_SHIFT;
}

u64 actmem_node_lingering_bytes(int node)
{
	return (u64)atomic_long_read(&node_totals[node].lingering_pages) << PAGE_SHIFT;
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
