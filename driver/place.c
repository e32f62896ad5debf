// SPDX-License-Identifier: GPL-2.0
/*
 * Chooses a node for each page. The driver never removes a node from a region's mask. A call fails
 * if a node of the mask has no memory, or if the task is not allowed to use the node.
 *
 * A call also fails, before it allocates anything, in two cases. First, the nodes could not hold
 * the requested length even if all of their memory were free. Second, the requested length, minus
 * the pages that the region already has, exceeds the administrator's limits.
 */
#include <linux/bitmap.h>
#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/sched/signal.h>
#include <linux/topology.h>

#include "actmem.h"

/* Zeroed pages on one node only; not movable, because these pages get pinned. */
#define ACTMEM_GFP	(GFP_USER | __GFP_ZERO | __GFP_THISNODE | __GFP_RETRY_MAYFAIL | \
			 __GFP_NOWARN | __GFP_ACCOUNT)

/* The memory cgroup is full if this many allocations fail on a node with free pages. */
#define FULL_TRIES	4

static nodemask_t place_allowed_nodes(void)
{
	nodemask_t allowed;

	/* mems_allowed changes only under this lock. */
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

/* Fills in @why. @reason says whether the node is full, or a limit of the node is reached. */
static int place_fail_node(struct actmem_why *why, u32 reason, int node,
			   unsigned long wanted, unsigned long available)
{
	bool full = reason == ACTMEM_WHY_NODE_FULL;
	int err = actmem_why_fail(why, full ? -ENOMEM : -EDQUOT, reason, node, wanted, available);

	if (full)
		why->movable = actmem_node_movable_bytes(node);
	return err;
}

/* Checks that the node has memory and that the task's cpuset allows the node. */
static int place_node_check(int node, struct actmem_why *why)
{
	if (node >= MAX_NUMNODES || !node_state(node, N_MEMORY))
		return actmem_why_fail(why, -ENODEV, ACTMEM_WHY_NO_MEMORY_NODE, node, 0, 0);
	/* Testing a single bit needs no lock. */
	if (!node_isset(node, cpuset_current_mems_allowed))
		return actmem_why_fail(why, -EPERM, ACTMEM_WHY_CPUSET, node, 0, 0);
	return 0;
}

/* Chooses the nodes from which the current task allocates @wanted pages of the region. */
void actmem_place_choose(const struct actmem_region *region, unsigned long wanted,
			 struct actmem_choice *choice)
{
	*choice = (struct actmem_choice){
		.wanted = wanted,
		.nodes = region->nodes,
		.from = numa_node_id(),
	};
	/*
	 * If the task is not allowed to use a node of the mask, keep this node, so that
	 * place_node_check() fails.
	 */
	if (region->policy == ACTMEM_POLICY_PREFERRED) {
		nodemask_t allowed = place_allowed_nodes();

		if (!nodes_empty(region->nodes))
			choice->from = first_node(region->nodes);
		nodes_or(choice->nodes, choice->nodes, allowed);
	}
	/* If the task is not allowed to use any node, place_node_check() fails for the nearest. */
	if (nodes_empty(choice->nodes))
		node_set(numa_mem_id(), choice->nodes);
}

/* Returns how many of @pages interleaved pages go to the i-th node of the choice. */
static unsigned long choice_share(const struct actmem_choice *choice, unsigned long pages,
				  unsigned int i)
{
	unsigned int count = nodes_weight(choice->nodes);

	return pages / count + (i < pages % count);
}

/*
 * Checks that @pages pages fit into the administrator's limits of the nodes (with @by_limit) or
 * into the nodes' memory (without @by_limit). Without this check, the system call would fail only
 * after reclaiming all memory. In an interleaved region, checks only a range that is the whole
 * region, because the share of each node in a smaller range is not known. Populating a smaller
 * range fails at the first page that cannot be allocated.
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
		/*
		 * Read @charged last: a page counts in @charged first, so @had includes all pages
		 * that @quota includes.
		 */
		unsigned long had = by_limit ? READ_ONCE(region->charged) : 0;
		unsigned long wanted = interleave ? choice_share(choice, pages, i) : pages;

		i++;
		wanted -= min(wanted, had);
		if (wanted > room && (interleave || i == count))
			return place_fail_node(why, by_limit ? ACTMEM_WHY_NODE_LIMIT :
							       ACTMEM_WHY_NODE_FULL,
					       node, wanted,
					       by_limit ? room : actmem_node_pages(node, true) +
								 actmem_pool_held(node));
		/* The next nodes provide the remaining pages. */
		if (!interleave)
			pages -= min(pages, room);
	}
	return 0;
}

/* Checks the limits of nodes for a range of @pages pages, including those that are present. */
int actmem_place_check_limits(struct actmem_region *region, const struct actmem_choice *choice,
			      unsigned long pages, struct actmem_why *why)
{
	int err;

	/* The lock prevents pages from leaving the region. */
	spin_lock(&region->lock);
	err = choice_check_room(choice, region, pages, true, why);
	spin_unlock(&region->lock);
	return err;
}

static bool place_policy_fits(u32 policy, unsigned int nodes)
{
	return (policy == ACTMEM_POLICY_BIND && nodes) || policy == ACTMEM_POLICY_INTERLEAVE ||
	       (policy == ACTMEM_POLICY_PREFERRED && nodes <= 1);
}

/* Checks policy, mask and length, and copies the mask to the region. */
int actmem_place_check(struct actmem_region *region, struct actmem_ioctl_create *arg)
{
	DECLARE_BITMAP(nodes, ACTMEM_NODE_MAX);
	struct actmem_choice choice;
	unsigned int node;
	int err;

	bitmap_from_arr64(nodes, arg->nodes, ACTMEM_NODE_MAX);
	if (!place_policy_fits(arg->policy, bitmap_weight(nodes, ACTMEM_NODE_MAX)))
		return -EINVAL;
	for_each_set_bit(node, nodes, ACTMEM_NODE_MAX) {
		err = place_node_check(node, &arg->why);
		if (err)
			return err;
		node_set(node, region->nodes);
	}
	/*
	 * Fix the mask now, so that a page's node does not depend on which task touches the page
	 * first.
	 */
	if (region->policy == ACTMEM_POLICY_INTERLEAVE && nodes_empty(region->nodes))
		region->nodes = place_allowed_nodes();
	actmem_place_choose(region, region->page_count, &choice);
	return choice_check_room(&choice, region, region->page_count, false, &arg->why);
}

/*
 * Allocates a page on the node. Returns ENOSPC if the node is full. If an allocation with
 * __GFP_ACCOUNT fails, and one without this flag succeeds, either a page has just become free, or
 * the memory cgroup is full. Several attempts distinguish these cases, even while other tasks free
 * and allocate pages.
 */
static struct folio *choice_alloc_page(int node, const struct actmem_choice *choice,
				       struct actmem_why *why)
{
	gfp_t unpaid = ACTMEM_GFP & ~(__GFP_ACCOUNT | __GFP_ZERO);
	struct folio *folio;
	int err, tries;

	for (tries = 0; tries < FULL_TRIES; tries++) {
		folio = actmem_node_alloc(node, ACTMEM_GFP);
		if (folio)
			return folio;
		folio = actmem_node_alloc(node, unpaid);
		/* The allocation can fail just because the task was killed. */
		err = fatal_signal_pending(current) ? -EINTR : 0;
		if (!folio)
			return ERR_PTR(err ?: -ENOSPC);
		actmem_node_free(folio);
		if (err)
			return ERR_PTR(err);
	}
	return ERR_PTR(actmem_why_fail(why, -ENOMEM, ACTMEM_WHY_MEMCG, NUMA_NO_NODE,
				       choice->wanted + choice->charged, choice->charged));
}

/*
 * Gets a page on this node for the slot. Returns ENOSPC if the node is full, EDQUOT if the node has
 * reached its limit, or EAGAIN if the task's dmem cgroup has reached its limit.
 */
static struct folio *choice_place_on(int node, struct actmem_region *region, unsigned long index,
				     struct actmem_choice *choice, struct actmem_why *why)
{
	struct folio *folio;
	int err;

	/*
	 * Check the node again: another task may have created the region, or the nodes may have
	 * changed.
	 */
	err = place_node_check(node, why);
	if (err)
		return ERR_PTR(err);
	if (!actmem_quota_charge(&actmem_nodes[node].pages))
		return ERR_PTR(-EDQUOT);
	err = ACTMEM_HAS_DMEM ? actmem_dmem_charge(region, index, node) : 0;
	if (err) {
		folio = ERR_PTR(err);
		goto uncharge;
	}
	folio = actmem_pool_take(node) ?: choice_alloc_page(node, choice, why);
	if (IS_ERR(folio)) {
		if (ACTMEM_HAS_DMEM)
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

/* Returns the i-th node if @interleave is set, else the nearest node that is left. */
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

/* Returns why the node gave no page; NONE if the node gave a page, or no other node would help. */
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
 * Returns a zeroed page for slot @index, from a pool or from the page allocator. Only a page from
 * the page allocator is charged to the memory cgroup. The caller owns the page.
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
			if (reason == ACTMEM_WHY_NODE_FULL && actmem_node_wait(&waits))
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
