/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions at limits: RLIMIT_MEMLOCK, too few pages, allowed fallbacks, and a memory cgroup. Each
 * test runs in a child, which may lower its own limits.
 */
#include "memory_group.h"

#define GROUP_BYTES	(32 * MIB)
#define EDGE_BYTES	(256 * MIB)	/* with 1 MiB of page tables */

static struct actmem *open_with(enum actmem_pages pages, uint32_t allow)
{
	struct actmem_options options = { .size = sizeof(options) };
	struct actmem *am;

	if (actmem_options_from_environment(&options))
		return NULL;
	if (pages)
		options.pages = pages;
	options.allow = allow;
	return actmem_open(&am, &options) ? NULL : am;
}

static bool memlock_refuses(void *context)
{
	struct actmem *am = open_with(0, 0);
	struct actmem_region *region;
	int error;

	if (!am || !lower_memlock(MIB))
		return false;
	error = create_region(am, LENGTH, 0, &region);
	if (!memlock_counts(am))
		return !error && !actmem_region_close(region) && !actmem_close(am);
	printf("# %s\n", actmem_error());
	return error == -ENOMEM && strstr(actmem_error(), "RLIMIT_MEMLOCK") &&
	       strstr(actmem_error(), "ulimit -l") && !actmem_close(am);
}

static bool unlocked_is_allowed(void *context)
{
	struct actmem *am = open_with(0, ACTMEM_ALLOW_UNLOCKED);
	struct actmem_region *region;
	int error;

	if (!am || !lower_memlock(MIB))
		return false;
	error = create_region(am, LENGTH, 0, &region);
	if (on_driver(am) || !memlock_counts(am))
		return error == (on_driver(am) ? -ENOMEM : 0);
	printf("# %s\n", actmem_error());
	return !error && strstr(actmem_error(), "unpinned") &&
	       !info_or_bail(region).pinned_bytes && fallbacks(am) == 1 &&
	       !actmem_region_close(region) && !actmem_close(am);
}

/* More hugetlb pages than any pool here has; the driver gives them. */
static bool hugetlb_runs_out(void *context)
{
	struct actmem *am = open_with(ACTMEM_PAGES_2M, 0);
	struct actmem_region *region;
	int error;

	if (!am)
		return false;
	error = create_region(am, 256 * MIB, 0, &region);
	if (on_driver(am))
		return !error;
	printf("# %s\n", actmem_error());
	return error == -ENOMEM && strstr(actmem_error(), "nr_hugepages") &&
	       strstr(actmem_error(), "256.0 MiB are needed") && strstr(actmem_error(), "ACTMEM_ALLOW");
}

static bool base_pages_are_allowed(void *context)
{
	struct actmem *am = open_with(ACTMEM_PAGES_2M, ACTMEM_ALLOW_4K);
	struct actmem_region_info info = { .size = sizeof(info) };
	struct actmem_region *region;

	if (!am || create_region(am, 256 * MIB, 0, &region) ||
	    actmem_region_get_info(region, &info))
		return false;
	if (on_driver(am))
		return info.pages == ACTMEM_PAGES_2M && !fallbacks(am);
	printf("# %s\n", actmem_error());
	return info.pages == ACTMEM_PAGES_4K && info.page_bytes == 4096 && fallbacks(am) == 1 &&
	       strstr(actmem_error(), "used 4 KiB pages instead");
}

static uint64_t total_of(const struct actmem_nodes *nodes)
{
	uint64_t total = 0;
	unsigned int node;

	for (node = 0; node < ACTMEM_NODES_MAX; node++)
		if (has_node(nodes, node))
			total += node_total(node);
	return total;
}

/* As much as the node has in all, which then goes to others in part. */
static bool spills_over(struct actmem *am, struct actmem_region *region, unsigned int node)
{
	bool told = strstr(actmem_error(), " instead");
	struct actmem_region_info info;

	printf("# %s\n", actmem_error());
	info = info_or_bail(region);
	return fallbacks(am) == 1 && told && info.node_bytes[node] < info.length &&
	       !actmem_region_close(region) && !actmem_close(am);
}

/* Where it would take a large machine's memory, only the refusal is seen. */
static bool other_nodes_are_allowed(void *context)
{
	struct actmem_nodes usable = usable_nodes();
	struct actmem *am = open_with(0, 0);
	struct actmem_region_options options = { .size = sizeof(options) };
	struct actmem_region *region;
	unsigned int node = 0;
	bool room;

	if (!am)
		return false;
	while (!has_node(&usable, node))
		node++;
	room = on_driver(am) && total_of(&usable) >= 2 * node_total(node) &&
	       node_total(node) <= 2048 * MIB;
	options.length = room ? node_total(node) : total_of(&usable);
	options.policy = ACTMEM_PLACE_BIND;
	options.allow = ACTMEM_ALLOW_NODE;
	add_node(&options.nodes, node);
	if (!actmem_region_create(am, &options, &region))
		return room && spills_over(am, region, node);
	printf("# %s\n", actmem_error());
	return !room && strstr(actmem_error(), " free, but ") && !fallbacks(am) && !actmem_close(am);
}

/* Nobody is killed. The cgroup is made for the test, in whichever version is there. */
static bool cgroup_refuses(void *context)
{
	const struct group *group = context;
	struct actmem_region *region;
	struct actmem *am;
	int error;

	if (!enter_group(group) || actmem_open(&am, NULL))
		return false;
	error = create_region(am, 2 * GROUP_BYTES, 0, &region);
	/* Hugetlb pages are counted by another controller. */
	if (!memlock_counts(am))
		return !error && !actmem_region_close(region) && !actmem_close(am);
	printf("# %s\n", actmem_error());
	if (error != -ENOMEM || !strstr(actmem_error(), "memory cgroup") ||
	    !strstr(actmem_error(), "64.0 MiB are needed") ||
	    !strstr(actmem_error(), strrchr(group->folder, '/')) ||
	    !strstr(actmem_error(), group->limit_file))
		return false;
	return !create_region(am, LENGTH, 0, &region) && !actmem_region_close(region) &&
	       !actmem_close(am);
}

struct edge {
	const struct group *group;
	uint64_t length;
};

/* The kernel kills the child if it populates more than the cgroup has left. */
static bool create_at_edge(void *context)
{
	const struct edge *edge = context;
	struct actmem_region *region;
	struct actmem *am;
	int error;

	if (!enter_group(edge->group) || actmem_open(&am, NULL))
		return false;
	/* The driver's allocations fail instead. */
	if (on_driver(am))
		return !actmem_close(am);
	error = create_region(am, edge->length, 0, &region);
	if (!error)
		error = actmem_region_close(region);
	return (!error || error == -ENOMEM) && !actmem_close(am);
}

static bool all_edges_are_errors(const struct group *group)
{
	const uint64_t step = page_bytes_wanted() > 4096 ? 2 * MIB : MIB / 4;
	struct edge edge = { .group = group };

	if (!put_in_group(group->folder, group->limit_file, "268435456"))
		return false;
	for (edge.length = EDGE_BYTES - 2 * MIB; edge.length <= EDGE_BYTES; edge.length += step)
		if (!in_child(create_at_edge, &edge)) {
			printf("# at %llu bytes\n", (unsigned long long)edge.length);
			return false;
		}
	return true;
}

int main(void)
{
	struct group group = { 0 };

	ok(in_child(memlock_refuses, NULL), "RLIMIT_MEMLOCK refuses where pages are locked");
	ok(in_child(unlocked_is_allowed, NULL), "unpinned memory where it is allowed");
	ok(in_child(hugetlb_runs_out, NULL), "too few pages: node, bytes and knob are named");
	ok(in_child(base_pages_are_allowed, NULL), "smaller pages where they are allowed");
	ok(in_child(other_nodes_are_allowed, NULL), "other nodes are tried where they are allowed");
	if (make_group(&group, GROUP_BYTES)) {
		ok(in_child(cgroup_refuses, &group),
		   "a memory cgroup refuses: bytes and knob are named, and less can be had");
		ok(all_edges_are_errors(&group),
		   "no length near the cgroup's limit kills the process");
	} else {
		tap_skip("no memory cgroup can be made here (%s)", strerror(errno));
	}
	remove_group(&group);
	return tap_end();
}
