/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * NUMA nodes: sets of them, what sysfs says of them, where pages are.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "error.h"
#include "node.h"
#include "sysfile.h"

#define SYSFS_NODES	"/sys/devices/system/node"
#define WALK_BATCH	1024

bool nodes_empty(const struct actmem_nodes *nodes)
{
	return nodes_next(nodes, 0) == ACTMEM_NODES_MAX;
}

unsigned int nodes_count(const struct actmem_nodes *nodes)
{
	unsigned int count = 0, i;

	for (i = 0; i < ACTMEM_NODES_MAX / 64; i++)
		count += __builtin_popcountll(nodes->word[i]);
	return count;
}

unsigned int nodes_next(const struct actmem_nodes *nodes, unsigned int from)
{
	while (from < ACTMEM_NODES_MAX) {
		uint64_t rest = nodes->word[from / 64] >> (from % 64);

		if (rest)
			return from + __builtin_ctzll(rest);
		from = (from / 64 + 1) * 64;
	}
	return ACTMEM_NODES_MAX;
}

/* A decimal number below ACTMEM_NODES_MAX at *@text, which moves behind it. */
static bool parse_node(const char **text, unsigned int *node)
{
	unsigned int value = 0;

	if (**text < '0' || **text > '9')
		return false;
	while (**text >= '0' && **text <= '9') {
		value = value * 10 + (unsigned int)(*(*text)++ - '0');
		if (value >= ACTMEM_NODES_MAX)
			return false;
	}
	*node = value;
	return true;
}

bool nodes_parse(const char *text, struct actmem_nodes *nodes)
{
	unsigned int first, last;

	memset(nodes, 0, sizeof(*nodes));
	if (!*text || !strcmp(text, "\n"))
		return true;
	for (;;) {
		if (!parse_node(&text, &first))
			return false;
		last = first;
		if (*text == '-') {
			text++;
			if (!parse_node(&text, &last) || last < first)
				return false;
		}
		for (; first <= last; first++)
			node_set(nodes, first);
		if (!*text || !strcmp(text, "\n"))
			return true;
		if (*text++ != ',')
			return false;
	}
}

const char *nodes_text(char text[NODES_TEXT_MAX], const struct actmem_nodes *nodes)
{
	unsigned int node, last;
	size_t used;

	if (nodes_empty(nodes)) {
		snprintf(text, NODES_TEXT_MAX, "no node");
		return text;
	}
	used = (size_t)sprintf(text, nodes_count(nodes) == 1 ? "node " : "nodes ");
	for_each_node(node, nodes) {
		/* Room for ",1022-1023" and the dots. */
		if (used + 16 > NODES_TEXT_MAX) {
			sprintf(text + used, "...");
			break;
		}
		for (last = node; last + 1 < ACTMEM_NODES_MAX && node_is_set(nodes, last + 1);)
			last++;
		used += (size_t)sprintf(text + used, "%s%u", text[used - 1] == ' ' ? "" : ",", node);
		if (last > node)
			used += (size_t)sprintf(text + used, "-%u", last);
		node = last;
	}
	return text;
}

static void nodes_with_memory(struct actmem_nodes *nodes)
{
	char text[4096];

	if (sysfile_read(SYSFS_NODES "/has_memory", text, sizeof(text)) ||
	    !nodes_parse(text, nodes) || nodes_empty(nodes)) {
		/* A kernel without NUMA has one node and no such file. */
		memset(nodes, 0, sizeof(*nodes));
		node_set(nodes, 0);
	}
}

/* What the task's cpuset allows; every node if the kernel cannot tell. */
static void nodes_of_cpuset(struct actmem_nodes *nodes)
{
	memset(nodes, 0, sizeof(*nodes));
	if (syscall(SYS_get_mempolicy, NULL, nodes->word, (unsigned long)ACTMEM_NODES_MAX,
		    NULL, (unsigned long)MPOL_F_MEMS_ALLOWED))
		memset(nodes, 0xff, sizeof(*nodes));
}

void nodes_allowed(struct actmem_nodes *nodes)
{
	struct actmem_nodes cpuset;
	unsigned int i;

	nodes_with_memory(nodes);
	nodes_of_cpuset(&cpuset);
	for (i = 0; i < ACTMEM_NODES_MAX / 64; i++)
		nodes->word[i] &= cpuset.word[i];
}

int nodes_check(const struct actmem_nodes *nodes)
{
	struct actmem_nodes with_memory, cpuset;
	unsigned int node;

	nodes_with_memory(&with_memory);
	nodes_of_cpuset(&cpuset);
	for_each_node(node, nodes) {
		if (!node_is_set(&with_memory, node))
			return fail(ENODEV, "node %u has no memory; this machine has memory on %s",
				    node, NODES_TEXT(&with_memory));
		if (!node_is_set(&cpuset, node))
			return fail(EPERM, "node %u is outside this task's cpuset, which has %s",
				    node, NODES_TEXT(&cpuset));
	}
	return 0;
}

unsigned int node_of_caller(void)
{
	unsigned int node;

	return getcpu(NULL, &node) ? 0 : node;
}

uint64_t nodes_free_hugetlb_bytes(const struct actmem_nodes *nodes, uint64_t page_bytes)
{
	char path[128], text[64];
	uint64_t pages = 0;
	unsigned int node;

	for_each_node(node, nodes) {
		snprintf(path, sizeof(path), SYSFS_NODES
			 "/node%u/hugepages/hugepages-%llukB/free_hugepages", node,
			 (unsigned long long)page_bytes / 1024);
		if (!sysfile_read(path, text, sizeof(text)))
			pages += strtoull(text, NULL, 10);
	}
	return pages * page_bytes;
}

/*
 * Free memory, the clean part of the page cache and reclaimable slabs, without
 * what the page cache keeps for its working set: half, as in MemAvailable.
 */
uint64_t nodes_available_bytes(const struct actmem_nodes *nodes)
{
	static const char *const halves[] = { "Active(file):", "Inactive(file):", "SReclaimable:" };
	char path[128], text[4096];
	uint64_t kib = 0;
	unsigned int node, i;

	for_each_node(node, nodes) {
		snprintf(path, sizeof(path), SYSFS_NODES "/node%u/meminfo", node);
		if (sysfile_read(path, text, sizeof(text)))
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
		return fail(errno, "%s (%s: %s): a container's seccomp profile may forbid it; give it CAP_SYS_NICE (docker run --cap-add SYS_NICE)",
			    what, call, strerror(errno));
	return fail(errno, "%s (%s: %s)", what, call, strerror(errno));
}

/* As move_pages(2); on a machine with one node it need not be permitted. */
static int ask_nodes(unsigned long count, void **pages, int *status)
{
	unsigned int node;
	unsigned long i;

	if (!syscall(SYS_move_pages, 0, count, pages, NULL, status, 0))
		return 0;
	if ((errno != EPERM && errno != ENOSYS) || !node_is_only_one(&node))
		return fail_numa_call("cannot ask for the nodes of pages", "move_pages");
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
