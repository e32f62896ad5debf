// SPDX-License-Identifier: GPL-2.0
/*
 * Which node a page comes from. A mask is never narrowed: a node that the
 * task may not use, or that has no memory, fails the call before anything is
 * allocated, and so does a length that the nodes could not hold if all of
 * their memory were free.
 */
#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/vmstat.h>

#include "actmem.h"

/* Zeroed by the page allocator; never movable, as these pages get pinned. */
#define ACTMEM_GFP	(GFP_USER | __GFP_COMP | __GFP_ZERO | __GFP_THISNODE | \
			 __GFP_RETRY_MAYFAIL | __GFP_NOWARN | __GFP_ACCOUNT)

/**
 * struct choice - the nodes to take pages from
 * @count: of nodes, at least one
 * @nodes: for interleaving in rising order, otherwise in order of preference
 */
struct choice {
	unsigned int count;
	int nodes[];
};

static void get_allowed_nodes(nodemask_t *allowed)
{
	/* The cpuset changes it under this lock. */
	task_lock(current);
	nodes_and(*allowed, cpuset_current_mems_allowed, node_states[N_MEMORY]);
	task_unlock(current);
}

static int fail(struct actmem_ioctl_create *arg, int err, u32 why, int node)
{
	arg->why = why;
	arg->why_node = node;
	return err;
}

/* ENOMEM: @wanted pages from this node, which had but @available to give. */
static int fail_full(struct actmem_ioctl_create *arg, int node, unsigned long wanted,
		     unsigned long available)
{
	struct zone *movable = &NODE_DATA(node)->node_zones[ZONE_MOVABLE];

	arg->why_wanted = wanted * ACTMEM_PAGE_BYTES;
	arg->why_available = available * ACTMEM_PAGE_BYTES;
	arg->why_movable = zone_page_state(movable, NR_FREE_PAGES) << PAGE_SHIFT;
	return fail(arg, -ENOMEM, ACTMEM_WHY_NODE_FULL, node);
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
			return fail(arg, -ENODEV, ACTMEM_WHY_NO_MEMORY_NODE, node);
		node_set(node, region->nodes);
	}
	get_allowed_nodes(&allowed);
	for_each_node_mask(node, region->nodes)
		if (!node_isset(node, allowed))
			return fail(arg, -EPERM, ACTMEM_WHY_CPUSET, node);
	return 0;
}

static void choose_nearest_first(struct choice *choice, nodemask_t *mask, int from)
{
	while (!nodes_empty(*mask)) {
		int node = actmem_nearest_node(mask, from);

		choice->nodes[choice->count++] = node;
		node_clear(node, *mask);
	}
}

static struct choice *choose(const struct actmem_region *region)
{
	nodemask_t mask = region->nodes;
	struct choice *choice;
	int node, here = numa_node_id();

	if (region->policy == ACTMEM_POLICY_PREFERRED || nodes_empty(mask))
		get_allowed_nodes(&mask);
	if (nodes_empty(mask))
		return NULL;
	choice = kzalloc(struct_size(choice, nodes, nodes_weight(mask)), GFP_KERNEL);
	if (!choice)
		return NULL;

	switch (region->policy) {
	case ACTMEM_POLICY_BIND:
		choose_nearest_first(choice, &mask, here);
		break;
	case ACTMEM_POLICY_PREFERRED:
		node = nodes_empty(region->nodes) ? actmem_nearest_node(&mask, here) :
						    first_node(region->nodes);
		choose_nearest_first(choice, &mask, node);
		break;
	case ACTMEM_POLICY_INTERLEAVE:
		for_each_node_mask(node, mask)
			choice->nodes[choice->count++] = node;
		break;
	}
	return choice;
}

/* How many of a region's pages interleaving puts on the i-th node chosen. */
static unsigned long interleave_share(const struct actmem_region *region,
				      const struct choice *choice, unsigned int i)
{
	return region->page_count / choice->count + (i < region->page_count % choice->count);
}

static unsigned long node_available(int node)
{
	return actmem_node_free(node) + actmem_pool_held(node);
}

/* Fails at once what would otherwise fail after having reclaimed everything. */
static int check_capacity(const struct actmem_region *region, const struct choice *choice,
			  struct actmem_ioctl_create *arg)
{
	unsigned long wanted = region->page_count;
	unsigned int i;
	int node;

	if (region->policy == ACTMEM_POLICY_INTERLEAVE) {
		for (i = 0; i < choice->count; i++) {
			node = choice->nodes[i];
			wanted = interleave_share(region, choice, i);
			if (wanted > actmem_node_capacity(node))
				return fail_full(arg, node, wanted, node_available(node));
		}
		return 0;
	}
	for (i = 0; ; i++) {
		unsigned long capacity;

		node = choice->nodes[i];
		capacity = actmem_node_capacity(node);
		if (wanted <= capacity)
			return 0;
		if (i == choice->count - 1)
			return fail_full(arg, node, wanted, node_available(node));
		wanted -= capacity;
	}
}

static struct page *alloc_page_on(int node, gfp_t gfp)
{
	return alloc_pages_node(node, gfp, ACTMEM_PAGE_ORDER);
}

static bool node_has_page(int node)
{
	struct page *page = alloc_page_on(node, ACTMEM_GFP & ~(__GFP_ACCOUNT | __GFP_ZERO));

	if (page)
		__free_pages(page, ACTMEM_PAGE_ORDER);
	return page;
}

/* Pages from the pools do not count here. */
static int fail_memcg(const struct actmem_region *region, struct actmem_ioctl_create *arg)
{
	unsigned long charged = 0, i;

	for (i = 0; i < region->pages_held; i++)
		charged += folio_memcg_kmem(region->folios[i]);
	arg->why_wanted = (region->page_count - region->pages_held + charged) * ACTMEM_PAGE_BYTES;
	arg->why_available = charged * ACTMEM_PAGE_BYTES;
	return fail(arg, -ENOMEM, ACTMEM_WHY_MEMCG, NUMA_NO_NODE);
}

/* ENOSPC if the node has none. */
static struct folio *alloc_folio(const struct actmem_region *region, int node,
				 struct actmem_ioctl_create *arg)
{
	struct page *page = alloc_page_on(node, ACTMEM_GFP);
	bool node_is_full = !page && !node_has_page(node);

	/* It has become free just now, or it is the memory cgroup that is full. */
	if (!page && !node_is_full)
		page = alloc_page_on(node, ACTMEM_GFP);
	if (fatal_signal_pending(current)) {
		if (page)
			__free_pages(page, ACTMEM_PAGE_ORDER);
		return ERR_PTR(-EINTR);
	}
	if (page)
		return page_folio(page);
	return ERR_PTR(node_is_full ? -ENOSPC : fail_memcg(region, arg));
}

/* Puts the next page of the region on this node. ENOSPC if the node has none. */
static int place_page(struct actmem_region *region, int node, struct actmem_ioctl_create *arg)
{
	struct folio *folio = actmem_pool_take(node) ?: alloc_folio(region, node, arg);

	if (IS_ERR(folio))
		return PTR_ERR(folio);
	if (folio_nid(folio) != node) {
		folio_put(folio);
		return fail(arg, -EIO, ACTMEM_WHY_MISPLACED, node);
	}
	folio->index = ACTMEM_SMALL_PAGES(region->pages_held);
	region->folios[region->pages_held++] = folio;
	region->node_pages_held[node]++;
	actmem_count_pages(node, 1);
	return 0;
}

static int place_in_order(struct actmem_region *region, const struct choice *choice,
			  struct actmem_ioctl_create *arg)
{
	unsigned int i = 0;

	while (region->pages_held < region->page_count) {
		int node = choice->nodes[i];
		int err = place_page(region, node, arg);

		if (err == -ENOSPC) {
			if (++i < choice->count)
				continue;
			return fail_full(arg, node, region->page_count - region->pages_held +
						    region->node_pages_held[node],
					 region->node_pages_held[node]);
		}
		if (err)
			return err;
		cond_resched();
	}
	return 0;
}

static int place_interleaved(struct actmem_region *region, const struct choice *choice,
			     struct actmem_ioctl_create *arg)
{
	while (region->pages_held < region->page_count) {
		unsigned int i = region->pages_held % choice->count;
		int node = choice->nodes[i];
		int err = place_page(region, node, arg);

		if (err == -ENOSPC)
			return fail_full(arg, node, interleave_share(region, choice, i),
					 region->node_pages_held[node]);
		if (err)
			return err;
		cond_resched();
	}
	return 0;
}

static int place_pages(struct actmem_region *region, const struct choice *choice,
		       struct actmem_ioctl_create *arg)
{
	int err;

	/* First: the table of an absurd length could take all that there is. */
	err = check_capacity(region, choice, arg);
	if (err)
		return err;
	region->folios = kvcalloc(region->page_count, sizeof(*region->folios),
				  GFP_KERNEL_ACCOUNT);
	if (!region->folios)
		return -ENOMEM;
	if (region->policy == ACTMEM_POLICY_INTERLEAVE)
		return place_interleaved(region, choice, arg);
	return place_in_order(region, choice, arg);
}

/*
 * Takes pages from the pools or, charged and zeroed here, from the page
 * allocator, and places them. What was placed before a failure stays in the
 * region.
 */
int actmem_place(struct actmem_region *region, struct actmem_ioctl_create *arg)
{
	struct choice *choice = choose(region);
	int err;

	if (!choice)
		return -ENOMEM;
	err = place_pages(region, choice, arg);
	kfree(choice);
	return err;
}
