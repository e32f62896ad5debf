/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads from sysfs how much memory NUMA nodes have, and asks the kernel for the nodes of pages.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/node.h"
#include "machine/sysfile.h"

#define SYSFS_NODES	"/sys/devices/system/node"
#define WALK_BATCH	1024

int nodes_check(const struct actmem_nodes *nodes)
{
	struct actmem_nodes with_memory, cpuset;
	unsigned int node;

	nodes_with_memory(&with_memory);
	nodes_of_cpuset(&cpuset);
	for_each_node(node, nodes) {
		if (!node_is_set(&with_memory, node))
			return fail(ENODEV, "node %u has no memory; this machine has memory on %s; choose nodes with %s",
				    node, NODES_TEXT(&with_memory), KNOB(NODES));
		if (!node_is_set(&cpuset, node))
			return fail(EPERM, "node %u is outside this task's cpuset, which has %s; choose nodes with %s",
				    node, NODES_TEXT(&cpuset), KNOB(NODES));
	}
	return 0;
}

unsigned int node_of_caller(void)
{
	unsigned int node;

	return getcpu(NULL, &node) ? 0 : node;
}

/*
 * Reads a file of a node, such as node%u/meminfo. If the kernel lacks NUMA or /sys is not mounted,
 * reads @whole instead: a file for the whole machine in the same format.
 */
static int read_of_node(unsigned int node, const char *file, const char *whole, char *text,
			size_t size)
{
	char path[128];
	int error;

	snprintf(path, sizeof(path), SYSFS_NODES "/node%u/%s", node, file);
	error = sysfile_read(path, text, size);
	if (error == -ENOENT && access(SYSFS_NODES, F_OK))
		error = sysfile_read(whole, text, size);
	return error;
}

static uint64_t hugetlb_bytes(const struct actmem_nodes *nodes, uint64_t page_bytes,
			      const char *file)
{
	char of_node[64], whole[96], text[64];
	uint64_t pages = 0;
	unsigned int node;

	snprintf(of_node, sizeof(of_node), "hugepages/hugepages-%llukB/%s",
		 (unsigned long long)page_bytes / 1024, file);
	snprintf(whole, sizeof(whole), "/sys/kernel/mm/%s", of_node);
	for_each_node(node, nodes) {
		if (!read_of_node(node, of_node, whole, text, sizeof(text)))
			pages += strtoull(text, NULL, 10);
	}
	return pages * page_bytes;
}

uint64_t nodes_free_hugetlb_bytes(const struct actmem_nodes *nodes, uint64_t page_bytes)
{
	return hugetlb_bytes(nodes, page_bytes, "free_hugepages");
}

uint64_t nodes_all_hugetlb_bytes(const struct actmem_nodes *nodes, uint64_t page_bytes)
{
	return hugetlb_bytes(nodes, page_bytes, "nr_hugepages");
}

/*
 * Adds up free memory, half of the page cache and half of the reclaimable slabs. The other halves
 * count as the working set, similar to MemAvailable.
 */
uint64_t nodes_available_bytes(const struct actmem_nodes *nodes)
{
	static const char *const halves[] = { "Active(file):", "Inactive(file):", "SReclaimable:" };
	char text[4096];
	uint64_t kib = 0;
	unsigned int node, i;

	for_each_node(node, nodes) {
		if (read_of_node(node, "meminfo", "/proc/meminfo", text, sizeof(text)))
			continue;
		kib += sysfile_number(text, "MemFree:");
		for (i = 0; i < sizeof(halves) / sizeof(halves[0]); i++)
			kib += sysfile_number(text, halves[i]) / 2;
	}
	return kib * 1024;
}

bool node_is_only_one(unsigned int *node)
{
	struct actmem_nodes nodes;

	nodes_with_memory(&nodes);
	*node = nodes_next(&nodes, 0);
	return nodes_count(&nodes) == 1;
}

int fail_numa_call(const char *what, const char *call)
{
	if (errno == EPERM || errno == ENOSYS)
		return fail(errno, "%s (%s: %s): a container's seccomp profile may forbid this call; give the container CAP_SYS_NICE (docker run --cap-add SYS_NICE)",
			    what, call, strerror(errno));
	return fail(errno, "%s (%s: %s)", what, call, strerror(errno));
}

/*
 * Asks move_pages(2) for the nodes of pages. If a container forbids the call, but only one node has
 * memory, all pages are on that node.
 */
static int ask_nodes(unsigned long count, void **pages, int *status)
{
	unsigned int node;
	unsigned long i;

	if (!syscall(SYS_move_pages, 0, count, pages, NULL, status, 0))
		return 0;
	if ((errno != EPERM && errno != ENOSYS) || !node_is_only_one(&node))
		return fail_numa_call("cannot get the nodes of pages", "move_pages");
	for (i = 0; i < count; i++)
		status[i] = (int)node;
	return 0;
}

int pages_walk(void *address, uint64_t length, uint64_t page_bytes,
	       int (*see)(void *context, uint64_t page, int node), void *context)
{
	void *pages[WALK_BATCH];
	int status[WALK_BATCH];
	uint64_t page = 0, count = length / page_bytes, batch, i;
	int error;

	while (page < count) {
		batch = count - page < WALK_BATCH ? count - page : WALK_BATCH;
		for (i = 0; i < batch; i++)
			pages[i] = (char *)address + (page + i) * page_bytes;
		error = ask_nodes(batch, pages, status);
		if (error)
			return error;
		for (i = 0; i < batch; i++) {
			error = see(context, page + i, status[i]);
			if (error)
				return error;
		}
		page += batch;
	}
	return 0;
}

uint32_t nodes_told(const uint64_t node_bytes[ACTMEM_NODES_MAX])
{
	uint32_t count = ACTMEM_NODES_MAX;

	while (count && !node_bytes[count - 1])
		count--;
	return count;
}

struct page_counts {
	uint64_t page_bytes;
	uint64_t *node_bytes;
};

static int count_page(void *context, uint64_t page, int node)
{
	struct page_counts *counts = context;

	if (node >= 0 && node < ACTMEM_NODES_MAX)
		counts->node_bytes[node] += counts->page_bytes;
	return 0;
}

int pages_count(void *address, uint64_t length, uint64_t page_bytes,
		uint64_t node_bytes[ACTMEM_NODES_MAX])
{
	struct page_counts counts = { page_bytes, node_bytes };

	return pages_walk(address, length, page_bytes, count_page, &counts);
}
