/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * NUMA nodes: sets of them, what sysfs says of them, where pages are.
 *
 * libnuma would replace the system calls alone, line for line. numa_parse_nodestring()
 * prints, allocates, and takes no node that this machine lacks, of which errors here tell
 * more; no call writes a list of nodes, tells hugetlb's pages, or what memory the kernel
 * can free; its own sets of nodes are those of when it was loaded. And it is not free:
 * its constructor reads files for 0.3 ms and changes the policy of the thread that loads
 * it, for a moment, to learn of a mode.
 */
#ifndef LIB_MACHINE_NODE_H
#define LIB_MACHINE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actmem.h"

#define BASE_PAGE_BYTES		4096ULL
#define HUGE_PAGE_BYTES		(2ULL << 20)
#define GIANT_PAGE_BYTES	(1ULL << 30)
#define NODES_TEXT_MAX		128

static inline uint64_t pages_bytes(enum actmem_pages pages)
{
	return pages == ACTMEM_PAGES_4K ? BASE_PAGE_BYTES :
	       pages == ACTMEM_PAGES_1G ? GIANT_PAGE_BYTES : HUGE_PAGE_BYTES;
}

/* Tells whether the administrator reserves such pages, of memfds. */
static inline bool pages_are_hugetlb(enum actmem_pages pages)
{
	return pages == ACTMEM_PAGES_2M || pages == ACTMEM_PAGES_1G;
}

/* The name of pages of that size; between two sizes, that of the smaller. */
static inline enum actmem_pages pages_of_bytes(uint64_t bytes)
{
	return bytes >= GIANT_PAGE_BYTES ? ACTMEM_PAGES_1G :
	       bytes >= HUGE_PAGE_BYTES ? ACTMEM_PAGES_2M : ACTMEM_PAGES_4K;
}

static inline void node_set(struct actmem_nodes *nodes, unsigned int node)
{
	nodes->word[node / 64] |= 1ULL << (node % 64);
}

static inline bool node_is_set(const struct actmem_nodes *nodes, unsigned int node)
{
	return nodes->word[node / 64] >> (node % 64) & 1;
}

bool nodes_empty(const struct actmem_nodes *nodes);
unsigned int nodes_count(const struct actmem_nodes *nodes);

/* The first node of the set that is >= @from; ACTMEM_NODES_MAX if none. */
unsigned int nodes_next(const struct actmem_nodes *nodes, unsigned int from);

#define for_each_node(node, nodes)				\
	for ((node) = nodes_next((nodes), 0); (node) < ACTMEM_NODES_MAX;	\
	     (node) = nodes_next((nodes), (node) + 1))

/* "0,2-3", as in sysfs; an empty string is an empty set. False: not that. */
bool nodes_parse(const char *text, struct actmem_nodes *nodes);

/* Reads the variable for nodes. */
struct reader;
void nodes_read(struct actmem_nodes *nodes, struct reader *reader);

/* "node 1", "nodes 0,2-3": cut off with "..." if there are too many. */
const char *nodes_text(char text[NODES_TEXT_MAX], const struct actmem_nodes *nodes);

#define NODES_TEXT(nodes)	nodes_text((char[NODES_TEXT_MAX]){0}, (nodes))

/* Node 0 where the kernel does not tell. */
void nodes_with_memory(struct actmem_nodes *nodes);

/* Nodes that the task's cpuset allows; every node if the kernel cannot tell. */
void nodes_of_cpuset(struct actmem_nodes *nodes);

/* Nodes with memory, of those that the task's cpuset allows. */
void nodes_allowed(struct actmem_nodes *nodes);

/*
 * Stores @node in @nodes, and the other nodes of its socket that the task may use: with
 * sub-NUMA clustering, a socket has several. Nodes without CPUs belong to no socket.
 */
void nodes_of_socket(unsigned int node, struct actmem_nodes *nodes);

/* Moves the nodes of @from that are nearest to @node to @to. False: @from is empty. */
bool nodes_take_nearest(unsigned int node, struct actmem_nodes *from, struct actmem_nodes *to);

/* 0; -ENODEV or -EPERM with words if a node of the set cannot be used. */
int nodes_check(const struct actmem_nodes *nodes);

/* The node of the CPU that runs this thread. */
unsigned int node_of_caller(void);

/* Tells whether a single node has memory, and which. */
bool node_is_only_one(unsigned int *node);

/* -errno with words that name @call and, if it is forbidden, the knob. */
int fail_numa_call(const char *what, const char *call);

/* Bytes of pages of this size in the hugetlb pools of these nodes: of free ones, of all. */
uint64_t nodes_free_hugetlb_bytes(const struct actmem_nodes *nodes, uint64_t page_bytes);
uint64_t nodes_all_hugetlb_bytes(const struct actmem_nodes *nodes, uint64_t page_bytes);

/* Bytes on these nodes that are free or that the kernel can free at once. */
uint64_t nodes_available_bytes(const struct actmem_nodes *nodes);

/*
 * Asks the kernel for the node of every page of @page_bytes in the range and
 * tells @see: the page's number and its node, negative errno if it has none.
 * What @see returns, if not 0, ends the walk and is returned.
 */
int pages_walk(void *address, uint64_t length, uint64_t page_bytes,
	       int (*see)(void *context, uint64_t page, int node), void *context);

/* How many nodes, from 0, there are until the last that has some. */
uint32_t nodes_told(const uint64_t node_bytes[ACTMEM_NODES_MAX]);

/* Adds the bytes on each node to @node_bytes. */
int pages_count(void *address, uint64_t length, uint64_t page_bytes,
		uint64_t node_bytes[ACTMEM_NODES_MAX]);

#endif /* LIB_MACHINE_NODE_H */
