/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Chooses the NUMA nodes of memory. Does not use libnuma, which reads files and allocates memory
 * when it is loaded.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine/machine.h"
#include "preload/malloc/place.h"

/* Not every C library has this function. */
#pragma weak getcpu

void place_choose(struct place *place, const struct malloc_settings *settings,
		  struct reader *reader)
{
	unsigned int count = nodes_count(&settings->nodes), node;
	struct actmem_nodes allowed;

	*place = (struct place){ .policy = settings->policy, .nodes = settings->nodes };
	if (!place->policy && count)
		place->policy = ACTMEM_PLACE_BIND;
	if (place->policy == ACTMEM_PLACE_BIND && !count)
		reader_refuse(reader, KNOB_POLICY, "bind if ACTMEM_NODES names nodes");
	if (place->policy == ACTMEM_PLACE_PREFERRED && count > 1)
		reader_refuse(reader, KNOB_POLICY, "preferred only if ACTMEM_NODES names a single node");
	nodes_allowed(&allowed);
	for_each_node(node, &place->nodes)
		if (!node_is_set(&allowed, node))
			reader_fail(reader, "%s is '%.200s', but this task may only use memory of %s",
				    KNOB(NODES), reader_text(reader, KNOB_NODES),
				    NODES_TEXT(&allowed));
	if (count)
		return;
	if (nodes_count(&allowed) == 1)
		place->policy = ACTMEM_PLACE_DEFAULT;
	else if (place->policy == ACTMEM_PLACE_INTERLEAVE)
		place->nodes = allowed;
	else
		place->by_caller = true;
}

unsigned int place_of_caller(const struct place *place)
{
	unsigned int cpu, node;

	if (!place->by_caller)
		return 0;
	return (getcpu ? getcpu(&cpu, &node) : syscall(SYS_getcpu, &cpu, &node, NULL)) ? 0 : node;
}

int place_range(const struct place *place, unsigned int node, void *address, size_t length)
{
	struct actmem_nodes nodes = place->nodes;
	int mode = place->policy == ACTMEM_PLACE_BIND ? MPOL_BIND :
		   place->policy == ACTMEM_PLACE_INTERLEAVE ? MPOL_INTERLEAVE : MPOL_PREFERRED;

	if (place->by_caller)
		node_set(&nodes, node);
	else if (!place->policy)
		return 0;
	return syscall(SYS_mbind, address, (unsigned long)length, mode, nodes.word,
		       (unsigned long)ACTMEM_NODES_MAX + 1, 0UL) ? -errno : 0;
}
