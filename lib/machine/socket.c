/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the nodes of a socket, and the distances between nodes, from sysfs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/node.h"
#include "machine/sysfile.h"

#define SYSFS_NODE	"/sys/devices/system/node/node%u/"
#define SYSFS_PACKAGE	"/sys/devices/system/cpu/cpu%lu/topology/physical_package_id"
#define TEXT_MAX	4096

/* Returns false if the node has no CPU, or if sysfs does not report its socket. */
static bool find_socket(unsigned int node, uint64_t *socket)
{
	char path[64], text[TEXT_MAX];

	snprintf(path, sizeof(path), SYSFS_NODE "cpulist", node);
	return !sysfile_read(path, text, sizeof(text)) && *text >= '0' && *text <= '9' &&
	       !sysfile_value(socket, SYSFS_PACKAGE, strtoul(text, NULL, 10));
}

void nodes_of_socket(unsigned int node, struct actmem_nodes *nodes)
{
	struct actmem_nodes with_memory;
	uint64_t socket, its;
	unsigned int other;

	memset(nodes, 0, sizeof(*nodes));
	node_set(nodes, node);
	if (!find_socket(node, &socket))
		return;
	nodes_with_memory(&with_memory);
	for_each_node(other, &with_memory)
		if (other != node && find_socket(other, &its) && its == socket)
			node_set(nodes, other);
}

/* Reads the distances of @node to all online nodes. sysfs lists them in the order of the nodes. */
static void read_distances(unsigned int node, unsigned long distances[ACTMEM_NODES_MAX])
{
	char path[64], text[TEXT_MAX], *at = text;
	struct actmem_nodes online;
	unsigned int other;

	memset(distances, 0, ACTMEM_NODES_MAX * sizeof(*distances));
	if (sysfile_read("/sys/devices/system/node/online", text, sizeof(text)) ||
	    !nodes_parse(text, &online))
		return;
	snprintf(path, sizeof(path), SYSFS_NODE "distance", node);
	if (sysfile_read(path, text, sizeof(text)))
		return;
	for_each_node(other, &online)
		distances[other] = strtoul(at, &at, 10);
}

bool nodes_take_nearest(unsigned int node, struct actmem_nodes *from, struct actmem_nodes *to)
{
	unsigned long distances[ACTMEM_NODES_MAX], least = -1UL;
	unsigned int other;

	read_distances(node, distances);
	for_each_node(other, from)
		if (distances[other] < least)
			least = distances[other];
	for_each_node(other, from) {
		if (distances[other] != least)
			continue;
		node_set(to, other);
		from->word[other / 64] &= ~(1ULL << (other % 64));
	}
	return least != -1UL;
}
