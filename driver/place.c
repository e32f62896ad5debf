// SPDX-License-Identifier: GPL-2.0
/*
 * Which node a page comes from. A mask is never narrowed: a node that the
 * task may not use, or that has no memory, fails the call before anything is
 * allocated, and so does a length that the nodes could not hold if all of
 * their memory were free, or that is over the administrator's limits.
 */
#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/vmstat.h>

#include "actmem.h"

/* Zeroed by the page allocator; never movable, as these pages get pinned. */
#define ACTMEM_GFP	(GFP_USER | __GFP_COMP | __GFP_ZERO | __GFP_THISNODE | \
			 __GFP_RETRY_MAYFAIL | __GFP_NOWARN | __GFP_ACCOUNT)

/* How often a node has to have had a page, and the caller none, to say why. */
#define FULL_TRIES	4

/**
 * struct actmem_choice - the nodes that the current task takes pages from
 * @wanted: pages, in all
 * @placed: pages placed
 * @charged: those of them that are charged to a memory cgroup
 * @allowed: nodes that its cpuset allows and that have memory
 * @current_node: index of the first node that has not been found full
 * @count: of nodes, at least one
 * @nodes: for interleaving in rising order, otherwise in order of preference
 */
struct actmem_choice {
	unsigned long wanted;
	unsigned long placed;
	unsigned long charged;
	nodemask_t allowed;
	unsigned int current_node;
	unsigned int count;
	struct {
		int id;
		unsigned long placed;
	} nodes[];
};

static nodemask_t place_allowed_nodes(void)
{
	nodemask_t allowed;

	/* The cpuset changes it under this lock. */
	task_lock(current);
	nodes_and(allowed, cpuset_current_mems_allowed, node_states[N_MEMORY]);
	task_unlock(current);
	return allowed;
}

int actmem_nearest_node(const nodemask_t *mask, int from)
{
	int node, nearest = NUMA_NO_NODE;

	for_each_node_mask(node, *mask)
		if (nearest == NUMA_NO_NODE ||
		    node_distance(from, node) < node_distance(from, nearest))
			nearest = node;
	return nearest;
}

/* Pages on a node that were not onlined as movable, used or not. */
unsigned long actmem_node_capacity(int node)
{
	unsigned long small_pages = 0;
	int zone;

	if (!node_state(node, N_MEMORY))
		return 0;
	for (zone = 0; zone < ZONE_MOVABLE; zone++)
		small_pages += zone_managed_pages(&NODE_DATA(node)->node_zones[zone]);
	return small_pages >> ACTMEM_PAGE_ORDER;
}

/* Those of them that are free, in pieces of whatever size, or in the node's pool. */
static unsigned long node_available(int node)
{
	unsigned long small_pages = 0;
	int zone;

	for (zone = 0; zone < ZONE_MOVABLE; zone++)
		small_pages += zone_page_state(&NODE_DATA(node)->node_zones[zone], NR_FREE_PAGES);
	return (small_pages >> ACTMEM_PAGE_ORDER) + actmem_pool_held(node);
}

static int place_fail(struct actmem_why *why, int err, u32 reason, int node)
{
	actmem_no_reason(why);
	why->reason = reason;
	why->node = node;
	return err;
}

/* ENOMEM: @wanted pages from this node, which had but @available to give. */
static int place_fail_full(struct actmem_why *why, int node, unsigned long wanted,
			   unsigned long available)
{
	struct zone *movable = &NODE_DATA(node)->node_zones[ZONE_MOVABLE];
	int err = place_fail(why, -ENOMEM, ACTMEM_WHY_NODE_FULL, node);

	why->wanted = wanted * ACTMEM_PAGE_BYTES;
	why->available = available * ACTMEM_PAGE_BYTES;
	why->movable = zone_page_state(movable, NR_FREE_PAGES) << PAGE_SHIFT;
	return err;
}

/* EDQUOT: the administrator's limit of the node is the one that does not let it be. */
static int place_fail_limit(struct actmem_why *why, int node, unsigned long wanted,
			    unsigned long available)
{
	int err = place_fail(why, -EDQUOT, ACTMEM_WHY_NODE_LIMIT, node);

	why->wanted = wanted * ACTMEM_PAGE_BYTES;
	why->available = available * ACTMEM_PAGE_BYTES;
	return err;
}

/* Checks policy and mask, and takes the mask over into the region. */
int actmem_place_check(struct actmem_region *region, struct actmem_ioctl_create *arg)
{
	unsigned int bits = 0, node;
	nodemask_t allowed;
	int i;

	for (i = 0; i < ACTMEM_NODE_WORDS; i++)
		bits += hweight64(arg->nodes[i]);
	switch (arg->policy) {
	case ACTMEM_POLICY_BIND:
		if (!bits)
			return -EINVAL;
		break;
	case ACTMEM_POLICY_PREFERRED:
		if (bits > 1)
			return -EINVAL;
		break;
	case ACTMEM_POLICY_INTERLEAVE:
		break;
	default:
		return -EINVAL;
	}

	for (node = 0; node < ACTMEM_NODE_MAX; node++) {
		if (!(arg->nodes[node / 64] & (1ULL << (node % 64))))
			continue;
		if (node >= MAX_NUMNODES || !node_state(node, N_MEMORY))
			return place_fail(&arg->why, -ENODEV, ACTMEM_WHY_NO_MEMORY_NODE, node);
		node_set(node, region->nodes);
	}
	allowed = place_allowed_nodes();
	for_each_node_mask(node, region->nodes)
		if (!node_isset(node, allowed))
			return place_fail(&arg->why, -EPERM, ACTMEM_WHY_CPUSET, node);
	/* For good, as page i must not depend on who touches it first. */
	if (region->policy == ACTMEM_POLICY_INTERLEAVE && nodes_empty(region->nodes))
		region->nodes = allowed;
	return 0;
}

static void choice_add(struct actmem_choice *choice, int node)
{
	choice->nodes[choice->count++].id = node;
}

static void choice_add_nearest_first(struct actmem_choice *choice, nodemask_t *mask, int from)
{
	while (!nodes_empty(*mask)) {
		int node = actmem_nearest_node(mask, from);

		choice_add(choice, node);
		node_clear(node, *mask);
	}
}

/* For kfree(); NULL if there is no memory for it. */
struct actmem_choice *actmem_choose(const struct actmem_region *region, unsigned long wanted)
{
	nodemask_t allowed = place_allowed_nodes();
	nodemask_t mask = region->nodes;
	struct actmem_choice *choice;
	int here = numa_node_id();
	int node;

	/* One that the region names but the caller may not use is not passed over. */
	if (region->policy == ACTMEM_POLICY_PREFERRED)
		nodes_or(mask, mask, allowed);
	if (nodes_empty(mask))
		return NULL;
	choice = kzalloc(struct_size(choice, nodes, nodes_weight(mask)), GFP_KERNEL);
	if (!choice)
		return NULL;

	choice->wanted = wanted;
	choice->allowed = allowed;
	switch (region->policy) {
	case ACTMEM_POLICY_BIND:
		choice_add_nearest_first(choice, &mask, here);
		break;
	case ACTMEM_POLICY_PREFERRED:
		node = nodes_empty(region->nodes) ? actmem_nearest_node(&mask, here) :
						    first_node(region->nodes);
		choice_add_nearest_first(choice, &mask, node);
		break;
	case ACTMEM_POLICY_INTERLEAVE:
		for_each_node_mask(node, mask)
			choice_add(choice, node);
		break;
	}
	return choice;
}

/* How many of the pages wanted interleaving puts on the i-th node chosen. */
static unsigned long choice_share(const struct actmem_choice *choice, unsigned int i)
{
	return choice->wanted / choice->count + (i < choice->wanted % choice->count);
}

static unsigned long node_limit_left(int node)
{
	return actmem_quota_left(actmem_quota_read(&actmem_nodes[node].pages));
}

/* Pages that a node could have in all, or that its limit leaves. */
static unsigned long node_room(int node, bool by_limit)
{
	return by_limit ? node_limit_left(node) : actmem_node_capacity(node);
}

static int node_refuse(int node, bool by_limit, unsigned long wanted, struct actmem_why *why)
{
	return by_limit ? place_fail_limit(why, node, wanted, node_limit_left(node)) :
			  place_fail_full(why, node, wanted, node_available(node));
}

static int choice_check_shares(const struct actmem_choice *choice, bool by_limit,
			       struct actmem_why *why)
{
	unsigned int i;

	for (i = 0; i < choice->count; i++) {
		unsigned long share = choice_share(choice, i);
		int node = choice->nodes[i].id;

		if (share > node_room(node, by_limit))
			return node_refuse(node, by_limit, share, why);
	}
	return 0;
}

/*
 * Fails at once what would otherwise fail after having reclaimed everything: more pages
 * than the nodes have, or, @by_limit, than the administrator's limits leave of them. As
 * only a region without any page, had or underway, has its shares of an interleaving,
 * for others it shows itself page by page.
 */
int actmem_place_check_room(const struct actmem_region *region, const struct actmem_choice *choice,
			    unsigned long wanted, bool by_limit, struct actmem_why *why)
{
	unsigned int i;

	if (region->policy == ACTMEM_POLICY_INTERLEAVE) {
		bool has_shares = wanted == region->page_count && wanted == choice->wanted;

		return has_shares ? choice_check_shares(choice, by_limit, why) : 0;
	}
	for (i = 0; ; i++) {
		int node = choice->nodes[i].id;
		unsigned long room = node_room(node, by_limit);

		if (wanted <= room)
			return 0;
		if (i == choice->count - 1)
			return node_refuse(node, by_limit, wanted, why);
		wanted -= room;
	}
}

static struct page *node_alloc_page(int node, gfp_t gfp)
{
	return alloc_pages_node(node, gfp, ACTMEM_PAGE_ORDER);
}

static bool node_has_page(int node)
{
	struct page *page = node_alloc_page(node, ACTMEM_GFP & ~(__GFP_ACCOUNT | __GFP_ZERO));

	if (page)
		__free_pages(page, ACTMEM_PAGE_ORDER);
	return page;
}

static unsigned long choice_unplaced(const struct actmem_choice *choice)
{
	return choice->wanted - min(choice->wanted, choice->placed);
}

/* Pages from the pools do not count here. */
static int choice_fail_memcg(const struct actmem_choice *choice, struct actmem_why *why)
{
	int err = place_fail(why, -ENOMEM, ACTMEM_WHY_MEMCG, NUMA_NO_NODE);

	why->wanted = (choice_unplaced(choice) + choice->charged) * ACTMEM_PAGE_BYTES;
	why->available = choice->charged * ACTMEM_PAGE_BYTES;
	return err;
}

/* ENOSPC if the node has none. */
static struct folio *choice_alloc_page(int node, const struct actmem_choice *choice,
				       struct actmem_why *why)
{
	struct page *page = node_alloc_page(node, ACTMEM_GFP);
	bool node_is_full = false;
	int err = 0, tries;

	/*
	 * If the node has one, it has become free just now, or it is the memory cgroup
	 * that is full. Where pages come and go, one answer is not enough.
	 */
	for (tries = 0; !page && tries < FULL_TRIES; tries++) {
		err = actmem_stopped();
		if (err)
			return ERR_PTR(err);
		node_is_full = !node_has_page(node);
		if (node_is_full)
			break;
		page = node_alloc_page(node, ACTMEM_GFP);
	}
	if (page)
		return page_folio(page);
	/* As a task that is killed, or reclaims in vain because it was, gets no page. */
	err = actmem_stopped();
	return ERR_PTR(err ?: node_is_full ? -ENOSPC : choice_fail_memcg(choice, why));
}

/* A page of the i-th node chosen. ENOSPC if the node has none, EDQUOT if it may not. */
static struct folio *choice_place_on(unsigned int i, struct actmem_choice *choice,
				     struct actmem_why *why)
{
	int node = choice->nodes[i].id;
	struct folio *folio;

	/* The region may be another task's, and the nodes may have changed. */
	if (!node_state(node, N_MEMORY))
		return ERR_PTR(place_fail(why, -ENODEV, ACTMEM_WHY_NO_MEMORY_NODE, node));
	if (!node_isset(node, choice->allowed))
		return ERR_PTR(place_fail(why, -EPERM, ACTMEM_WHY_CPUSET, node));
	if (!actmem_quota_charge(&actmem_nodes[node].pages))
		return ERR_PTR(-EDQUOT);
	folio = actmem_pool_take(node) ?: choice_alloc_page(node, choice, why);
	if (!IS_ERR(folio) && folio_nid(folio) != node) {
		actmem_pool_give(folio);
		folio = ERR_PTR(place_fail(why, -EIO, ACTMEM_WHY_MISPLACED, node));
	}
	if (IS_ERR(folio)) {
		actmem_quota_uncharge(&actmem_nodes[node].pages);
		return folio;
	}
	choice->nodes[i].placed++;
	choice->placed++;
	choice->charged += folio_memcg_kmem(folio);
	return folio;
}

static bool place_is_full(const struct folio *folio)
{
	return folio == ERR_PTR(-ENOSPC) || folio == ERR_PTR(-EDQUOT);
}

/*
 * A page of zeros for the @index-th slot: from a pool or, charged and zeroed
 * here, from the page allocator. Its only reference is the caller's.
 */
struct folio *actmem_place_page(const struct actmem_region *region, unsigned long index,
				struct actmem_choice *choice, struct actmem_why *why)
{
	bool interleave = region->policy == ACTMEM_POLICY_INTERLEAVE;
	unsigned int i = interleave ? index % choice->count : choice->current_node;
	struct folio *folio = choice_place_on(i, choice, why);
	unsigned long placed, wanted;

	while (place_is_full(folio) && !interleave && i + 1 < choice->count) {
		choice->current_node = ++i;
		folio = choice_place_on(i, choice, why);
	}
	if (!place_is_full(folio))
		return folio;

	placed = choice->nodes[i].placed;
	wanted = interleave ? choice_share(choice, i) : choice_unplaced(choice) + placed;
	if (folio == ERR_PTR(-EDQUOT))
		return ERR_PTR(place_fail_limit(why, choice->nodes[i].id, wanted, placed));
	return ERR_PTR(place_fail_full(why, choice->nodes[i].id, wanted, placed));
}
