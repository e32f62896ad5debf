// SPDX-License-Identifier: GPL-2.0
/*
 * Which node a page comes from. A mask is never narrowed: a node that the
 * task may not use, or that has no memory, fails the call. So does, before anything is
 * allocated, a length that the nodes could not hold if all of their memory were free,
 * or for which the administrator's limits have no room beside what the region has.
 */
#include <linux/bitmap.h>
#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/topology.h>
#include <linux/vmstat.h>

#include "actmem.h"

/* Of that node alone, and zeroed; never movable, as these pages get pinned. */
#define ACTMEM_GFP	(GFP_USER | __GFP_COMP | __GFP_ZERO | __GFP_THISNODE | \
			 __GFP_RETRY_MAYFAIL | __GFP_NOWARN | __GFP_ACCOUNT)

/* How often a node has to have had a page, and the caller none, to say why. */
#define FULL_TRIES	4
/* How often a node that has none is asked again, and after how long. */
#define FULL_WAITS	8
#define FULL_REST	msecs_to_jiffies(10)

static nodemask_t place_allowed_nodes(void)
{
	nodemask_t allowed;

	/* The cpuset changes it under this lock. */
	task_lock(current);
	nodes_and(allowed, cpuset_current_mems_allowed, node_states[N_MEMORY]);
	task_unlock(current);
	return allowed;
}

static int place_nearest_node(const nodemask_t *mask, int from)
{
	int node, nearest = NUMA_NO_NODE;

	for_each_node_mask(node, *mask)
		if (nearest == NUMA_NO_NODE ||
		    node_distance(from, node) < node_distance(from, nearest))
			nearest = node;
	return nearest;
}

/* Pages that can move get those for CMA, and regions none. Counters run behind each other. */
static unsigned long zone_free_pages(struct zone *zone)
{
	unsigned long all = zone_page_state(zone, NR_FREE_PAGES);

	return all - min(all, zone_page_state(zone, NR_FREE_CMA_PAGES));
}

/* Pages of a node but for its movable zone; @free ones are in pieces of any size. */
static unsigned long node_pages(int node, bool free)
{
	struct zone *zone = NODE_DATA(node)->node_zones;
	struct zone *movable = zone + ZONE_MOVABLE;
	unsigned long small_pages = 0;

	for (; zone < movable; zone++)
		small_pages += free ? zone_free_pages(zone) : zone_managed_pages(zone);
	return small_pages >> ACTMEM_PAGE_ORDER;
}

/* Bytes that are free on a node, but not for regions. */
static u64 node_movable_bytes(int node)
{
	struct zone *zone = NODE_DATA(node)->node_zones;
	struct zone *movable = zone + ZONE_MOVABLE;
	unsigned long small_pages = zone_page_state(movable, NR_FREE_PAGES);

	for (; zone < movable; zone++)
		small_pages += zone_page_state(zone, NR_FREE_CMA_PAGES);
	return (u64)small_pages << PAGE_SHIFT;
}

/* Pages that a node could have in all, used or not. */
unsigned long actmem_node_capacity(int node)
{
	return node_state(node, N_MEMORY) ? node_pages(node, false) : 0;
}

/* @wanted pages, of which @available could be had. */
static int place_fail(struct actmem_why *why, int err, u32 reason, int node,
		      unsigned long wanted, unsigned long available)
{
	actmem_no_reason(why);
	why->reason = reason;
	why->node = node;
	why->wanted = wanted * ACTMEM_PAGE_BYTES;
	why->available = available * ACTMEM_PAGE_BYTES;
	return err;
}

/* The node's memory does not let it be, or a limit of it, as @reason tells. */
static int place_fail_node(struct actmem_why *why, u32 reason, int node,
			   unsigned long wanted, unsigned long available)
{
	int err;

	if (reason != ACTMEM_WHY_NODE_FULL)
		return place_fail(why, -EDQUOT, reason, node, wanted, available);
	err = place_fail(why, -ENOMEM, ACTMEM_WHY_NODE_FULL, node, wanted, available);
	why->movable = node_movable_bytes(node);
	return err;
}

/* Whether the task may have pages of the node, and there are any. */
static int node_check(int node, struct actmem_why *why)
{
	if (node >= MAX_NUMNODES || !node_state(node, N_MEMORY))
		return place_fail(why, -ENODEV, ACTMEM_WHY_NO_MEMORY_NODE, node, 0, 0);
	/* Of one node it may be asked without the lock. */
	if (!node_isset(node, cpuset_current_mems_allowed))
		return place_fail(why, -EPERM, ACTMEM_WHY_CPUSET, node, 0, 0);
	return 0;
}

/* For @wanted pages of the region, by the current task. */
void actmem_choose(const struct actmem_region *region, unsigned long wanted,
		   struct actmem_choice *choice)
{
	*choice = (struct actmem_choice){
		.wanted = wanted,
		.nodes = region->nodes,
		.from = numa_node_id(),
	};
	/* One that the region names but the caller may not use is not passed over. */
	if (region->policy == ACTMEM_POLICY_PREFERRED) {
		nodemask_t allowed = place_allowed_nodes();

		if (!nodes_empty(region->nodes))
			choice->from = first_node(region->nodes);
		nodes_or(choice->nodes, choice->nodes, allowed);
	}
	/* A task that may use no node is refused the nearest one, by its name. */
	if (nodes_empty(choice->nodes))
		node_set(numa_mem_id(), choice->nodes);
}

/* How many of the pages interleaving puts on the i-th node of the choice. */
static unsigned long choice_share(const struct actmem_choice *choice, unsigned long pages,
				  unsigned int i)
{
	unsigned int count = nodes_weight(choice->nodes);

	return pages / count + (i < pages % count);
}

/*
 * Fails at once what would otherwise fail after having reclaimed everything: a range
 * of more pages than the nodes have, or, @by_limit, than the administrator's limits
 * leave of them. Of an interleaving only the whole has its shares of them; a part shows
 * itself page by page.
 */
static int choice_check_room(const struct actmem_choice *choice,
			     const struct actmem_region *region, unsigned long pages,
			     bool by_limit, struct actmem_why *why)
{
	bool interleave = region->policy == ACTMEM_POLICY_INTERLEAVE;
	unsigned int count = nodes_weight(choice->nodes), i = 0;
	int node;

	if (interleave && pages < region->page_count)
		return 0;
	for_each_node_mask(node, choice->nodes) {
		struct actmem_quota quota = actmem_quota_read(&actmem_nodes[node].pages);
		unsigned long room = by_limit ? actmem_quota_left(quota) :
						actmem_node_capacity(node);
		/* What counts there already counts here, as it is read last. */
		unsigned long had = by_limit ? READ_ONCE(region->charged) : 0;
		unsigned long wanted = interleave ? choice_share(choice, pages, i) : pages;

		i++;
		wanted -= min(wanted, had);
		if (wanted > room && (interleave || i == count))
			return place_fail_node(why, by_limit ? ACTMEM_WHY_NODE_LIMIT :
							       ACTMEM_WHY_NODE_FULL,
					       node, wanted,
					       by_limit ? room : node_pages(node, true) +
								 actmem_pool_held(node));
		/* The others are for the rest. */
		if (!interleave)
			pages -= min(pages, room);
	}
	return 0;
}

/* The limits of nodes, for a range of so many pages, be they there or missing. */
int actmem_place_check_limits(struct actmem_region *region, const struct actmem_choice *choice,
			      unsigned long pages, struct actmem_why *why)
{
	int err;

	/* No page leaves the region meanwhile. */
	spin_lock(&region->lock);
	err = choice_check_room(choice, region, pages, true, why);
	spin_unlock(&region->lock);
	return err;
}

static bool policy_fits(u32 policy, unsigned int nodes)
{
	switch (policy) {
	case ACTMEM_POLICY_BIND:
		return nodes;
	case ACTMEM_POLICY_PREFERRED:
		return nodes <= 1;
	default:
		return policy == ACTMEM_POLICY_INTERLEAVE;
	}
}

/* Checks policy, mask and length, and takes the mask over into the region. */
int actmem_place_check(struct actmem_region *region, struct actmem_ioctl_create *arg)
{
	DECLARE_BITMAP(nodes, ACTMEM_NODE_MAX);
	struct actmem_choice choice;
	unsigned int node;
	int err;

	bitmap_from_arr64(nodes, arg->nodes, ACTMEM_NODE_MAX);
	if (!policy_fits(arg->policy, bitmap_weight(nodes, ACTMEM_NODE_MAX)))
		return -EINVAL;
	for_each_set_bit(node, nodes, ACTMEM_NODE_MAX) {
		err = node_check(node, &arg->why);
		if (err)
			return err;
		node_set(node, region->nodes);
	}
	/* For good, as page i must not depend on who touches it first. */
	if (region->policy == ACTMEM_POLICY_INTERLEAVE && nodes_empty(region->nodes))
		region->nodes = place_allowed_nodes();
	actmem_choose(region, region->page_count, &choice);
	return choice_check_room(&choice, region, region->page_count, false, &arg->why);
}

/*
 * Waits before a node is asked once more that had no page, unless it was asked often:
 * @waits, from 0. Where much of what is free is for CMA, the kernel gives up with page
 * cache left that it then reclaims in the background.
 */
bool actmem_wait_for_page(unsigned int *waits)
{
	if (*waits == FULL_WAITS)
		return false;
	++*waits;
	schedule_timeout_killable(FULL_REST);
	return true;
}

/*
 * ENOSPC if the node has none. If it has one, but not for the caller, that has become
 * free just now, or it is the memory cgroup that is full, where pages from the pools do
 * not count. Where pages come and go, one answer is not enough.
 */
static struct folio *choice_alloc_page(int node, const struct actmem_choice *choice,
				       struct actmem_why *why)
{
	gfp_t unpaid = ACTMEM_GFP & ~(__GFP_ACCOUNT | __GFP_ZERO);
	struct page *page;
	int err, tries;

	for (tries = 0; tries < FULL_TRIES; tries++) {
		page = alloc_pages_node(node, ACTMEM_GFP, ACTMEM_PAGE_ORDER);
		if (page)
			return page_folio(page);
		page = alloc_pages_node(node, unpaid, ACTMEM_PAGE_ORDER);
		/* As a task that is killed, or reclaims in vain because it was, gets no page. */
		err = actmem_stopped();
		if (!page)
			return ERR_PTR(err ?: -ENOSPC);
		__free_pages(page, ACTMEM_PAGE_ORDER);
		if (err)
			return ERR_PTR(err);
	}
	return ERR_PTR(place_fail(why, -ENOMEM, ACTMEM_WHY_MEMCG, NUMA_NO_NODE,
				  choice->wanted + choice->charged, choice->charged));
}

/*
 * A page of this node for the slot. ENOSPC if it has none, EDQUOT if it may have no more,
 * EAGAIN if the task's cgroup may have no more of it.
 */
static struct folio *choice_place_on(int node, struct actmem_region *region, unsigned long index,
				     struct actmem_choice *choice, struct actmem_why *why)
{
	struct folio *folio;
	int err;

	/* The region may be another task's, and the nodes may have changed. */
	err = node_check(node, why);
	if (err)
		return ERR_PTR(err);
	if (!actmem_quota_charge(&actmem_nodes[node].pages))
		return ERR_PTR(-EDQUOT);
	err = actmem_dmem_charge(region, index, node);
	if (err) {
		folio = ERR_PTR(err);
		goto uncharge;
	}
	folio = actmem_pool_take(node) ?: choice_alloc_page(node, choice, why);
	if (IS_ERR(folio)) {
		actmem_dmem_uncharge(region, index);
		goto uncharge;
	}
	if (choice->wanted)
		choice->wanted--;
	choice->placed++;
	choice->placed_here++;
	choice->charged += folio_memcg_kmem(folio);
	return folio;

uncharge:
	actmem_quota_uncharge(&actmem_nodes[node].pages);
	return folio;
}

/* The i-th, or the nearest that has not been found full. */
static int choice_node(const struct actmem_choice *choice, bool interleave, unsigned int i)
{
	int node;

	if (!interleave)
		return place_nearest_node(&choice->nodes, choice->from);
	for_each_node_mask(node, choice->nodes)
		if (!i--)
			break;
	return node;
}

/* Why another node may do instead; NONE if that is not the question. */
static u32 place_reason(const struct folio *folio)
{
	switch (PTR_ERR_OR_ZERO(folio)) {
	case -ENOSPC:
		return ACTMEM_WHY_NODE_FULL;
	case -EDQUOT:
		return ACTMEM_WHY_NODE_LIMIT;
	case -EAGAIN:
		return ACTMEM_WHY_DMEM;
	default:
		return ACTMEM_WHY_NONE;
	}
}

/*
 * A page of zeros for the @index-th slot: from a pool or, charged and zeroed
 * here, from the page allocator. Its only reference is the caller's.
 */
struct folio *actmem_place_page(struct actmem_region *region, unsigned long index,
				struct actmem_choice *choice, struct actmem_why *why)
{
	bool interleave = region->policy == ACTMEM_POLICY_INTERLEAVE;
	unsigned int count = nodes_weight(choice->nodes), i = index % count, waits = 0;
	unsigned long wanted, placed;
	struct folio *folio;
	u32 reason;
	int node;

	for (;;) {
		node = choice_node(choice, interleave, i);
		folio = choice_place_on(node, region, index, choice, why);
		reason = place_reason(folio);
		if (reason == ACTMEM_WHY_NONE)
			return folio;
		if (interleave || count == 1) {
			if (reason == ACTMEM_WHY_NODE_FULL && actmem_wait_for_page(&waits))
				continue;
			break;
		}
		count--;
		node_clear(node, choice->nodes);
		choice->placed_here = 0;
	}
	placed = interleave ? choice->placed / count : choice->placed_here;
	wanted = interleave ? choice_share(choice, choice->wanted + choice->placed, i) :
			      choice->wanted + placed;
	return ERR_PTR(place_fail_node(why, reason, node, max(wanted, placed + 1), placed));
}
