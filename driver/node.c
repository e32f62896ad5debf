// SPDX-License-Identifier: GPL-2.0
/*
 * What a node has: memory that can be pinned, in huge pages, and distance.
 */
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/topology.h>
#include <linux/vmstat.h>

#include "actmem.h"

#define FREE_AREAS	ARRAY_SIZE(((struct zone *)NULL)->free_area)

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

/* Those of them that are free in one piece. */
unsigned long actmem_node_free(int node)
{
	unsigned long pages = 0;
	size_t order;
	int zone;

	for (zone = 0; zone < ZONE_MOVABLE; zone++) {
		struct free_area *areas = NODE_DATA(node)->node_zones[zone].free_area;

		for (order = ACTMEM_PAGE_ORDER; order < FREE_AREAS; order++)
			pages += areas[order].nr_free << (order - ACTMEM_PAGE_ORDER);
	}
	return pages;
}

/* Whether taking a page leaves enough for nobody to have to reclaim. */
bool actmem_node_has_room(int node)
{
	unsigned long unused = 0, reserve = HPAGE_PMD_NR;
	int i;

	for (i = 0; i < ZONE_MOVABLE; i++) {
		struct zone *zone = &NODE_DATA(node)->node_zones[i];

		unused += zone_page_state(zone, NR_FREE_PAGES);
		reserve += high_wmark_pages(zone);
	}
	return node_state(node, N_MEMORY) && unused > reserve;
}
