/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Sets of CPUs; see cpus.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "machine/cpus.h"
#include "machine/sysfile.h"

#define SYSFS_NODES	"/sys/devices/system/node"
#define NODE_CPUS	SYSFS_NODES "/node%u/cpulist"
#define CORE_CPUS	"/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list"
#define LIST_MAX	4096

bool cpus_keep_listed(struct cpus *cpus, const char *list)
{
	unsigned long cpu = 0, first, last;
	char *end;

	do {
		first = strtoul(list, &end, 10);
		if (end == list)
			return false;
		last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
		for (; cpu < first && cpu < CPUS_MAX; cpu++)
			CPU_CLR_S(cpu, sizeof(*cpus), cpus_set(cpus));
		cpu = last + 1;
		list = end + 1;
	} while (*end == ',');
	for (; cpu < CPUS_MAX; cpu++)
		CPU_CLR_S(cpu, sizeof(*cpus), cpus_set(cpus));
	return true;
}

bool cpus_keep_node(struct cpus *cpus, unsigned int node)
{
	char path[sizeof(NODE_CPUS) + 16], list[LIST_MAX];

	/* A kernel without NUMA has one node and no such folder. */
	if (!node && access(SYSFS_NODES, F_OK))
		return true;
	snprintf(path, sizeof(path), NODE_CPUS, node);
	return !sysfile_read(path, list, sizeof(list)) && cpus_keep_listed(cpus, list);
}

int cpus_of_process(struct cpus *cpus)
{
	return sched_getaffinity(getpid(), sizeof(*cpus), cpus_set(cpus)) ? -errno : 0;
}

/* Returns true if a CPU of the set belongs to the same core as @cpu, and has a lower number. */
static bool has_earlier_sibling(const struct cpus *cpus, unsigned int cpu)
{
	char path[sizeof(CORE_CPUS) + 16], list[LIST_MAX];
	struct cpus siblings = *cpus;
	unsigned int earlier;

	snprintf(path, sizeof(path), CORE_CPUS, cpu);
	if (sysfile_read(path, list, sizeof(list)) || !cpus_keep_listed(&siblings, list))
		return false;
	for (earlier = 0; earlier < cpu; earlier++)
		if (CPU_ISSET_S(earlier, sizeof(siblings), cpus_set(&siblings)))
			return true;
	return false;
}

unsigned int cpus_count_cores(struct cpus *cpus)
{
	unsigned int cpu, count = 0;

	for (cpu = 0; cpu < CPUS_MAX; cpu++)
		if (CPU_ISSET_S(cpu, sizeof(*cpus), cpus_set(cpus)) &&
		    !has_earlier_sibling(cpus, cpu))
			count++;
	return count;
}
