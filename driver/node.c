// SPDX-License-Identifier: GPL-2.0
/* Allocates and frees pages, and reads the page allocator's counters of a node's memory. */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/vmstat.h>

#include "actmem.h"

/* How often to retry on a full node, and how long to wait before each retry. */
#define FULL_WAITS	8
#define FULL_REST	msecs_to_jiffies(10)

/*
 * Allocates a page on the node, with ACTMEM_PAGE_REFERENCES references. Does not use
 * __folio_alloc_node(), which marks the page as large_rmappable. The kernel treats a marked page as
 * a transparent huge page: split_huge_pages, in debugfs, would dereference folio->mapping, which is
 * NULL. The kernel can map the page without this mark, as it maps compound pages of other drivers.
 */
struct folio *actmem_node_alloc(int node, gfp_t gfp)
{
	struct page *page = alloc_pages_node(node, gfp | __GFP_COMP, ACTMEM_PAGE_ORDER);

	if (!page)
		return NULL;
	/* The page allocator returns the page with one reference. */
	folio_ref_add(page_folio(page), ACTMEM_PAGE_REFERENCES - 1);
	return page_folio(page);
}

/* Frees a page from actmem_node_alloc(). */
void actmem_node_free(struct folio *folio)
{
	folio_put_refs(folio, ACTMEM_PAGE_REFERENCES);
}

/*
 * Returns the number of free small pages of a zone. Pages reserved for CMA are not counted, because
 * only movable allocations can use them. The two counters are not updated together, so their
 * difference can be negative. A negative difference counts as 0.
 */
static unsigned long node_zone_free_pages(struct zone *zone)
{
	unsigned long all = zone_page_state(zone, NR_FREE_PAGES);

	return all - min(all, zone_page_state(zone, NR_FREE_CMA_PAGES));
}

/*
 * Returns the memory outside the node's movable zone, in huge pages. With @free, counts only free
 * memory, which may be fragmented.
 */
unsigned long actmem_node_pages(int node, bool free)
{
	struct zone *zone = NODE_DATA(node)->node_zones;
	struct zone *movable = zone + ZONE_MOVABLE;
	unsigned long small_pages = 0;

	for (; zone < movable; zone++)
		small_pages += free ? node_zone_free_pages(zone) : zone_managed_pages(zone);
	return small_pages >> ACTMEM_PAGE_ORDER;
}

/* Returns how many free bytes of a node only movable pages can use, so that regions cannot. */
u64 actmem_node_movable_bytes(int node)
{
	struct zone *zone = NODE_DATA(node)->node_zones;
	struct zone *movable = zone + ZONE_MOVABLE;
	unsigned long small_pages = zone_page_state(movable, NR_FREE_PAGES);

	for (; zone < movable; zone++)
		small_pages += zone_page_state(zone, NR_FREE_CMA_PAGES);
	return (u64)small_pages << PAGE_SHIFT;
}

/* Returns how many pages the node could provide if all of its memory were free. */
unsigned long actmem_node_capacity(int node)
{
	return node_state(node, N_MEMORY) ? actmem_node_pages(node, false) : 0;
}

/*
 * Waits before the caller retries on a full node. Counts the calls in *@waits, which the caller
 * first sets to 0. Returns false after FULL_WAITS calls. If much of the free memory is reserved for
 * CMA, the page allocator fails although the kernel could reclaim page cache. During the wait, the
 * kernel reclaims this page cache in the background.
 */
bool actmem_node_wait(unsigned int *waits)
{
	if (*waits == FULL_WAITS)
		return false;
	++*waits;
	schedule_timeout_killable(FULL_REST);
	return true;
}
