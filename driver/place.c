// SPDX-License-Identifier: GPL-2.0
/*
 * Which node a page comes from. A mask is never narrowed: a node that the
 * task may not use, or that has no memory, fails the call before anything is
 * allocated, and so does a length that the nodes could not hold if all of
 * their memory were free, or that is over the administrator's limits.
 */
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/vmstat.h>

#include "actmem.h"
#include "trace.h"

/* Zeroed by the page allocator; never movable, as these pages get pinned. */
#define ACTMEM_GFP	(GFP_USER | __GFP_COMP | __GFP_ZERO | __GFP_THISNODE | \
			 __GFP_RETRY_MAYFAIL | __GFP_NOWARN | __GFP_ACCOUNT)

/* What is free. That it is wanted may well begin to be felt by kswapd. */
#define ACTMEM_FREE_GFP	((ACTMEM_GFP & ~(__GFP_DIRECT_RECLAIM | __GFP_RETRY_MAYFAIL)) | \
			 __GFP_NOMEMALLOC)

/* How often a node has to have had a page, and the caller none, to say why. */
#define FULL_TRIES	4

/**
 * struct actmem_choice - the nodes to take pages from, by several tasks at once
 * @wanted: pages, in all
 * @charged: pages placed that are charged to a memory cgroup
 * @placed: pages placed
 * @current_node: index of the first node that has not been found full; changed
 *	while only one task is at it
 * @count: of nodes, at least one
 * @nodes: for interleaving in rising order, otherwise in order of preference
 */
struct actmem_choice {
	unsigned long wanted;
	atomic_long_t charged;
	atomic_long_t placed;
	unsigned int current_node;
	unsigned int count;
	struct {
		int id;
		atomic_long_t placed;
	} nodes[];
};

static int fail(struct actmem_why *why, int err, u32 reason, int node)
{
	actmem_no_reason(why);
	why->reason = reason;
	why->node = node;
	return err;
}

/* ENOMEM: @wanted pages from this node, which had but @available to give. */
static int fail_full(struct actmem_why *why, int node, unsigned long wanted,
		     unsigned long available)
{
	struct zone *movable = &NODE_DATA(node)->node_zones[ZONE_MOVABLE];
	int err = fail(why, -ENOMEM, ACTMEM_WHY_NODE_FULL, node);

	why->wanted = wanted * ACTMEM_PAGE_BYTES;
	why->available = available * ACTMEM_PAGE_BYTES;
	why->movable = zone_page_state(movable, NR_FREE_PAGES) << PAGE_SHIFT;
	return err;
}

/* EDQUOT: the administrator's limit of the node is the one that does not let it be. */
static int fail_limit(struct actmem_why *why, int node, unsigned long wanted,
		      unsigned long available)
{
	int err = fail(why, -EDQUOT, ACTMEM_WHY_NODE_LIMIT, node);

	why->wanted = wanted * ACTMEM_PAGE_BYTES;
	why->available = available * ACTMEM_PAGE_BYTES;
	return err;
}

/* Checks policy and mask, and takes the mask over into the region. */
int actmem_place_check(struct actmem_region *region, struct actmem_ioctl_create *arg)
{
	unsigned int bits = 0, node;
	struct actmem_caller caller;
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
			return fail(&arg->why, -ENODEV, ACTMEM_WHY_NO_MEMORY_NODE, node);
		node_set(node, region->nodes);
	}
	actmem_caller_init(&caller);
	for_each_node_mask(node, region->nodes)
		if (!node_isset(node, caller.allowed))
			return fail(&arg->why, -EPERM, ACTMEM_WHY_CPUSET, node);
	/* For good, as page i must not depend on who touches it first. */
	if (region->policy == ACTMEM_POLICY_INTERLEAVE && nodes_empty(region->nodes))
		region->nodes = caller.allowed;
	return 0;
}

static void add_node(struct actmem_choice *choice, int node)
{
	choice->nodes[choice->count++].id = node;
}

static void add_nearest_first(struct actmem_choice *choice, nodemask_t *mask, int from)
{
	while (!nodes_empty(*mask)) {
		int node = actmem_nearest_node(mask, from);

		add_node(choice, node);
		node_clear(node, *mask);
	}
}

/* For kfree(); NULL if there is no memory for it. */
struct actmem_choice *actmem_choose(const struct actmem_region *region,
				    const struct actmem_caller *caller, unsigned long wanted)
{
	struct actmem_choice *choice;
	nodemask_t mask = region->nodes;
	int node;

	/* One that the region names but the caller may not use is not passed over. */
	if (region->policy == ACTMEM_POLICY_PREFERRED)
		nodes_or(mask, mask, caller->allowed);
	if (nodes_empty(mask))
		return NULL;
	choice = kzalloc(struct_size(choice, nodes, nodes_weight(mask)), GFP_KERNEL);
	if (!choice)
		return NULL;

	choice->wanted = wanted;
	switch (region->policy) {
	case ACTMEM_POLICY_BIND:
		add_nearest_first(choice, &mask, caller->node);
		break;
	case ACTMEM_POLICY_PREFERRED:
		node = nodes_empty(region->nodes) ? actmem_nearest_node(&mask, caller->node) :
						    first_node(region->nodes);
		add_nearest_first(choice, &mask, node);
		break;
	case ACTMEM_POLICY_INTERLEAVE:
		for_each_node_mask(node, mask)
			add_node(choice, node);
		break;
	}
	return choice;
}

/* How many of the pages wanted interleaving puts on the i-th node chosen. */
static unsigned long interleave_share(const struct actmem_choice *choice, unsigned int i)
{
	return choice->wanted / choice->count + (i < choice->wanted % choice->count);
}

static unsigned long count_unplaced(const struct actmem_choice *choice)
{
	unsigned long placed = atomic_long_read(&choice->placed);

	return choice->wanted - min(choice->wanted, placed);
}

static unsigned long node_available(int node)
{
	return actmem_node_free(node) + actmem_pool_held(node);
}

/* Fails at once what would otherwise fail after having reclaimed everything. */
int actmem_place_capacity(const struct actmem_region *region, const struct actmem_choice *choice,
			  struct actmem_why *why)
{
	unsigned long wanted = choice->wanted;
	unsigned int i;
	int node;

	if (region->policy == ACTMEM_POLICY_INTERLEAVE) {
		for (i = 0; i < choice->count; i++) {
			node = choice->nodes[i].id;
			wanted = interleave_share(choice, i);
			if (wanted > actmem_node_capacity(node))
				return fail_full(why, node, wanted, node_available(node));
		}
		return 0;
	}
	for (i = 0; ; i++) {
		unsigned long capacity;

		node = choice->nodes[i].id;
		capacity = actmem_node_capacity(node);
		if (wanted <= capacity)
			return 0;
		if (i == choice->count - 1)
			return fail_full(why, node, wanted, node_available(node));
		wanted -= capacity;
	}
}

/*
 * Fails at once what the limits of the nodes do not let be: so many pages. As only a
 * region without any page, had or underway, has its shares of an interleaving, for
 * others it shows itself page by page.
 */
int actmem_place_limits(const struct actmem_region *region, const struct actmem_choice *choice,
			unsigned long wanted, struct actmem_why *why)
{
	bool has_shares = wanted == region->page_count && wanted == choice->wanted;
	unsigned long left = 0;
	unsigned int i;
	int node;

	if (region->policy == ACTMEM_POLICY_INTERLEAVE) {
		for (i = 0; i < choice->count && has_shares; i++) {
			node = choice->nodes[i].id;
			wanted = interleave_share(choice, i);
			left = actmem_node_left(node);
			if (wanted > left)
				return fail_limit(why, node, wanted, left);
		}
		return 0;
	}
	for (i = 0; i < choice->count; i++) {
		wanted -= min(wanted, left);
		node = choice->nodes[i].id;
		left = actmem_node_left(node);
		if (wanted <= left)
			return 0;
	}
	return fail_limit(why, node, wanted, left);
}

static struct page *alloc_page_on(int node, gfp_t gfp)
{
	return alloc_pages_node(node, gfp, ACTMEM_PAGE_ORDER);
}

/* The caller pays, whose task it may not be that is at it. */
static struct page *alloc_charged(int node, const struct actmem_caller *caller, gfp_t gfp)
{
	struct mem_cgroup *own;
	struct page *page;

	if (!caller->memcg)
		return alloc_page_on(node, gfp);
	own = set_active_memcg(caller->memcg);
	page = alloc_page_on(node, gfp);
	set_active_memcg(own);
	return page;
}

static bool node_has_page(int node)
{
	struct page *page = alloc_page_on(node, ACTMEM_GFP & ~(__GFP_ACCOUNT | __GFP_ZERO));

	if (page)
		__free_pages(page, ACTMEM_PAGE_ORDER);
	return page;
}

/* Pages from the pools do not count here. */
static int fail_memcg(const struct actmem_choice *choice, struct actmem_why *why)
{
	unsigned long charged = atomic_long_read(&choice->charged);
	int err = fail(why, -ENOMEM, ACTMEM_WHY_MEMCG, NUMA_NO_NODE);

	why->wanted = (count_unplaced(choice) + charged) * ACTMEM_PAGE_BYTES;
	why->available = charged * ACTMEM_PAGE_BYTES;
	return err;
}

/* ENOSPC if the node has none. */
static struct folio *alloc_folio(int node, const struct actmem_choice *choice,
				 const struct actmem_caller *caller, struct actmem_why *why)
{
	struct page *page = alloc_charged(node, caller, ACTMEM_GFP);
	bool node_is_full = false;
	int err, tries;

	/*
	 * If the node has one, it has become free just now, or it is the memory cgroup
	 * that is full. Where pages come and go, one answer is not enough.
	 */
	for (tries = 0; !page && tries < FULL_TRIES; tries++) {
		node_is_full = !node_has_page(node);
		if (node_is_full || actmem_caller_stopped(caller))
			break;
		page = alloc_charged(node, caller, ACTMEM_GFP);
	}
	err = actmem_caller_stopped(caller);
	if (err) {
		if (page)
			__free_pages(page, ACTMEM_PAGE_ORDER);
		return ERR_PTR(err);
	}
	if (page)
		return page_folio(page);
	return ERR_PTR(node_is_full ? -ENOSPC : fail_memcg(choice, why));
}

/* ENOSPC if the node has none, or none for so little an effort. */
static struct folio *get_folio(int node, const struct actmem_choice *choice,
			       const struct actmem_caller *caller, enum actmem_effort effort,
			       struct actmem_why *why)
{
	struct folio *folio = actmem_pool_take_ready(node);
	struct page *page;

	if (!folio && effort > ACTMEM_READY)
		folio = actmem_pool_take(node);
	if (folio)
		return folio;
	if (effort == ACTMEM_RECLAIM)
		return alloc_folio(node, choice, caller, why);
	page = effort == ACTMEM_FREE ? alloc_charged(node, caller, ACTMEM_FREE_GFP) : NULL;
	return page ? page_folio(page) : ERR_PTR(-ENOSPC);
}

/* A page of the i-th node chosen. ENOSPC if the node has none, EDQUOT if it may not. */
static struct folio *place_on(unsigned int i, struct actmem_choice *choice,
			      const struct actmem_caller *caller, enum actmem_effort effort,
			      struct actmem_why *why)
{
	u64 began = actmem_latency_begin(trace_actmem_page_alloc_enabled());
	int node = choice->nodes[i].id;
	struct folio *folio;

	/* The region may be another task's, and the nodes may have changed. */
	if (!node_state(node, N_MEMORY))
		return ERR_PTR(fail(why, -ENODEV, ACTMEM_WHY_NO_MEMORY_NODE, node));
	if (!node_isset(node, caller->allowed))
		return ERR_PTR(fail(why, -EPERM, ACTMEM_WHY_CPUSET, node));
	if (!actmem_node_reserve(node))
		return ERR_PTR(-EDQUOT);
	folio = get_folio(node, choice, caller, effort, why);
	if (!IS_ERR(folio) && folio_nid(folio) != node) {
		actmem_pool_give(folio);
		folio = ERR_PTR(fail(why, -EIO, ACTMEM_WHY_MISPLACED, node));
	}
	if (IS_ERR(folio)) {
		actmem_node_unreserve(node);
		return folio;
	}
	trace_actmem_page_alloc(node, actmem_pool_has_lent(folio), actmem_latency_end(began));
	atomic_long_inc(&choice->nodes[i].placed);
	atomic_long_inc(&choice->placed);
	atomic_long_add(folio_memcg_kmem(folio), &choice->charged);
	return folio;
}

/* Changes when a node has been found full, and the next is had recourse to. */
unsigned int actmem_place_current(const struct actmem_choice *choice)
{
	return choice->current_node;
}

/* For now, every so many slots have their pages from the same node. */
unsigned int actmem_place_stride(const struct actmem_region *region,
				 const struct actmem_choice *choice)
{
	return region->policy == ACTMEM_POLICY_INTERLEAVE ? choice->count : 1;
}

static unsigned int index_of_node(const struct actmem_region *region, unsigned long index,
				  const struct actmem_choice *choice)
{
	if (region->policy == ACTMEM_POLICY_INTERLEAVE)
		return index % choice->count;
	return choice->current_node;
}

/* The node that the page of the @index-th slot is to come from. */
int actmem_place_node(const struct actmem_region *region, unsigned long index,
		      const struct actmem_choice *choice)
{
	return choice->nodes[index_of_node(region, index, choice)].id;
}

static bool is_full(const struct folio *folio)
{
	return folio == ERR_PTR(-ENOSPC) || folio == ERR_PTR(-EDQUOT);
}

/*
 * A page of zeros for the @index-th slot: from a pool or, charged and zeroed
 * here, from the page allocator. Its only reference is the caller's. With an
 * effort of less than ACTMEM_RECLAIM, ENOSPC if it takes more, without a reason;
 * several tasks may do that at once.
 */
struct folio *actmem_place_page(const struct actmem_region *region, unsigned long index,
				struct actmem_choice *choice, const struct actmem_caller *caller,
				enum actmem_effort effort, struct actmem_why *why)
{
	bool interleave = region->policy == ACTMEM_POLICY_INTERLEAVE;
	unsigned int i = index_of_node(region, index, choice);
	struct folio *folio = place_on(i, choice, caller, effort, why);
	unsigned long placed, wanted;

	if (effort < ACTMEM_RECLAIM)
		return folio;
	while (is_full(folio) && !interleave && i + 1 < choice->count) {
		choice->current_node = ++i;
		folio = place_on(i, choice, caller, effort, why);
	}
	if (!is_full(folio))
		return folio;

	placed = atomic_long_read(&choice->nodes[i].placed);
	wanted = interleave ? interleave_share(choice, i) : count_unplaced(choice) + placed;
	if (folio == ERR_PTR(-EDQUOT))
		return ERR_PTR(fail_limit(why, choice->nodes[i].id, wanted, placed));
	return ERR_PTR(fail_full(why, choice->nodes[i].id, wanted, placed));
}
