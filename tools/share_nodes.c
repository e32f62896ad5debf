// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Chooses the nodes for one process of a job: the nodes of its GPUs, the nodes of the CPUs that the
 * launcher assigned to it, or its part of all nodes.
 */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "actmem_runtime.h"
#include "config/config.h"
#include "machine/machine.h"
#include "share.h"

#define SYSFS_NODES	"/sys/devices/system/node"
#define GPUS_MAX	64
#define CPUS_MAX	8192	/* limit of the kernel on x86-64 */

struct slice share_slice(unsigned int things, const struct rank *rank)
{
	unsigned int first = (unsigned int)((uint64_t)rank->number * things / rank->of);
	unsigned int end = (unsigned int)((uint64_t)(rank->number + 1) * things / rank->of);

	return (struct slice){ first, end > first ? end - first : 1 };
}

int share_node_of_folder(const char *folder)
{
	char link[64], device[PATH_MAX], *end;
	struct stat stat_of;
	uint64_t node;

	if (stat(folder, &stat_of))
		return -1;
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(stat_of.st_dev),
		 minor(stat_of.st_dev));
	if (!realpath(link, device))
		return -1;
	/* sysfs has the node only at the controller, a parent of the disk and its partitions. */
	while ((end = strrchr(device, '/')) && end != device) {
		if (!sysfile_value(&node, "%s/numa_node", device) && node < ACTMEM_NODES_MAX)
			return (int)node;
		*end = '\0';
	}
	return -1;
}

/*
 * Stores the node of each GPU that CUDA shows to this process, or -1 if the node is not known.
 * Returns the number of GPUs.
 */
static unsigned int find_gpus(int nodes[GPUS_MAX])
{
	const char *platforms = getenv("JAX_PLATFORMS");
	struct actmem_runtime_options wanted;
	struct actmem_runtime_info info;
	struct actmem_runtime *runtime;
	struct actmem_options options;
	unsigned int count = 0;
	struct actmem *am;

	if (platforms && !strcmp(platforms, "cpu"))
		return 0;
	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	if (actmem_open(&am, &options))
		return 0;
	ACTMEM_INIT(&wanted);
	wanted.kind = ACTMEM_RUNTIME_CUDA;
	for (; count < GPUS_MAX; count++) {
		wanted.device = (int32_t)count;
		if (actmem_runtime_open(am, &wanted, &runtime))
			break;
		ACTMEM_INIT(&info);
		nodes[count] = actmem_runtime_get_info(runtime, &info) ? -1 : info.node;
		actmem_runtime_close(runtime);
	}
	actmem_close(am);
	return count;
}

static bool nodes_of_gpu(const struct rank *rank, struct actmem_nodes *nodes,
			 char why[SHARE_WHY_MAX])
{
	int of_gpus[GPUS_MAX];
	unsigned int count = find_gpus(of_gpus), first = 0, i;

	/*
	 * If there is a GPU for each rank, JAX uses the GPU with the rank's number. Otherwise, all
	 * GPUs that CUDA shows to this process belong to this rank.
	 */
	if (count >= rank->of) {
		first = rank->number;
		count = first + 1;
	}
	if (count == first + 1)
		snprintf(why, SHARE_WHY_MAX, "of GPU %u", first);
	else
		snprintf(why, SHARE_WHY_MAX, "of its GPUs");
	for (i = first; i < count; i++)
		if (of_gpus[i] >= 0)
			node_set(nodes, (unsigned int)of_gpus[i]);
	return count;
}

/* Adds to @nodes each node of @some that has CPUs of this process. */
static void nodes_of_cpus(const struct actmem_nodes *some, struct actmem_nodes *nodes)
{
	cpu_set_t own[CPUS_MAX / CPU_SETSIZE];
	unsigned int node, cpu;
	char path[64];

	if (sched_getaffinity(0, sizeof(own), own))
		return;
	for (cpu = 0; cpu < CPUS_MAX; cpu++) {
		if (!CPU_ISSET_S(cpu, sizeof(own), own))
			continue;
		for_each_node(node, some) {
			snprintf(path, sizeof(path), SYSFS_NODES "/node%u/cpu%u", node, cpu);
			if (!access(path, F_OK))
				node_set(nodes, node);
		}
	}
}

static void intersect_nodes(struct actmem_nodes *nodes, const struct actmem_nodes *others)
{
	unsigned int i;

	for (i = 0; i < ACTMEM_NODES_MAX / 64; i++)
		nodes->word[i] &= others->word[i];
}

/*
 * Removes nodes without CPUs from @nodes, unless the user named the nodes. The remaining nodes are
 * candidates for ranks without a GPU.
 */
static void find_candidates(struct actmem_nodes *nodes, bool are_named)
{
	struct actmem_nodes with_cpus;
	char text[4096];

	if (are_named)
		return;
	if (!sysfile_read(SYSFS_NODES "/has_cpu", text, sizeof(text)) &&
	    nodes_parse(text, &with_cpus))
		intersect_nodes(nodes, &with_cpus);
}

static void nodes_of_rank(const struct rank *rank, const struct actmem_nodes *some,
			  struct actmem_nodes *nodes)
{
	struct slice slice = share_slice(nodes_count(some), rank);
	unsigned int node, seen = 0;

	for_each_node(node, some) {
		if (seen >= slice.first && seen < slice.first + slice.count)
			node_set(nodes, node);
		seen++;
	}
}

bool share_nodes(const struct rank *rank, struct actmem_nodes *nodes, char why[SHARE_WHY_MAX])
{
	uint64_t policy = reader_value(&READER(0), KNOB_POLICY);
	const char *named = reader_text(&READER(0), KNOB_NODES);
	bool has_gpu;
	struct actmem_nodes some;
	unsigned int first;

	memset(nodes, 0, sizeof(*nodes));
	nodes_allowed(&some);
	if ((named && !nodes_parse(named, &some)) || nodes_count(&some) < 2 ||
	    policy == ACTMEM_PLACE_INTERLEAVE)
		return false;
	has_gpu = nodes_of_gpu(rank, nodes, why);
	intersect_nodes(nodes, &some);
	find_candidates(&some, named);
	if (nodes_empty(nodes)) {
		nodes_of_cpus(&some, nodes);
		snprintf(why, SHARE_WHY_MAX, "of its CPUs");
		if (!memcmp(nodes, &some, sizeof(some)))
			memset(nodes, 0, sizeof(*nodes));
	}
	/* A GPU whose node is not known may be on any node. */
	if (nodes_empty(nodes) && has_gpu)
		return false;
	if (nodes_empty(nodes) && !nodes_empty(&some)) {
		nodes_of_rank(rank, &some, nodes);
		snprintf(why, SHARE_WHY_MAX, "of its rank");
	}
	/* The policy "preferred" allows only one node. */
	first = nodes_next(nodes, 0);
	if (policy == ACTMEM_PLACE_PREFERRED && first < ACTMEM_NODES_MAX) {
		memset(nodes, 0, sizeof(*nodes));
		node_set(nodes, first);
	}
	return !nodes_empty(nodes);
}
