/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * NUMA nodes: sets of nodes, the memory of nodes as sysfs reports it, and the nodes of pages.
 *
 * The library does not use libnuma, which would not make the code shorter. When libnuma is loaded,
 * it changes the memory policy of the loading thread for a moment, and ends the process if it
 * cannot allocate memory. The functions numa_parse_nodestring() and numa_distance() print on
 * stderr. numa_parse_nodestring() also rejects nodes that this machine lacks. The LD_PRELOAD
 * library cannot use libnuma, but needs these sets of nodes too.
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

/* Returns true if memfds of such pages need hugetlb pages, which the administrator reserves. */
static inline bool pages_are_hugetlb(enum actmem_pages pages)
{
	return pages == ACTMEM_PAGES_2M || pages == ACTMEM_PAGES_1G;
}

/*
 * Returns the kind of pages of @bytes bytes. If no kind has that size, returns the next smaller
 * kind.
 */
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

/* Returns the first node of the set that is >= @from; ACTMEM_NODES_MAX if there is none. */
unsigned int nodes_next(const struct actmem_nodes *nodes, unsigned int from);

#define for_each_node(node, nodes)				\
	for ((node) = nodes_next((nodes), 0); (node) < ACTMEM_NODES_MAX;	\
	     (node) = nodes_next((nodes), (node) + 1))

/* Parses a list such as "0,2-3", as in sysfs. "" is an empty set. Returns false on errors. */
bool nodes_parse(const char *text, struct actmem_nodes *nodes);

/* Reads the environment variable for nodes. */
struct reader;
void nodes_read(struct actmem_nodes *nodes, struct reader *reader);

/* Writes "node 1" or "nodes 0,2-3" to @text, cut off with "..." if it is too long. */
const char *nodes_text(char text[NODES_TEXT_MAX], const struct actmem_nodes *nodes);

#define NODES_TEXT(nodes)	nodes_text((char[NODES_TEXT_MAX]){0}, (nodes))

/* Finds the nodes that have memory; if the kernel does not report them, only node 0. */
void nodes_with_memory(struct actmem_nodes *nodes);

/* Finds the nodes that the task's cpuset allows; if the kernel does not report them, all nodes. */
void nodes_of_cpuset(struct actmem_nodes *nodes);

/* Finds the nodes that have memory and that the task's cpuset allows. */
void nodes_allowed(struct actmem_nodes *nodes);

/*
 * Sets @nodes to @node and the other nodes of its socket that have memory, even those that the
 * task's cpuset forbids. With sub-NUMA clustering, a socket has several nodes. Nodes without CPUs
 * belong to no socket.
 */
void nodes_of_socket(unsigned int node, struct actmem_nodes *nodes);

/*
 * Finds the nodes of @from that are nearest to @node, and moves them to @to. Returns false if @from
 * is empty.
 */
bool nodes_take_nearest(unsigned int node, struct actmem_nodes *from, struct actmem_nodes *to);

/* Returns -ENODEV or -EPERM with an error message if a node of the set cannot be used; else 0. */
int nodes_check(const struct actmem_nodes *nodes);

/* Returns the node of the CPU that runs this thread. */
unsigned int node_of_caller(void);

/* Returns true if only one node has memory. Sets *@node to the first node with memory. */
bool node_is_only_one(unsigned int *node);

/* Returns -errno. The error message names @call and, if that call was forbidden, a remedy. */
int fail_numa_call(const char *what, const char *call);

/* Return the size in bytes of the free pages, or of all pages, in these nodes' hugetlb pools. */
uint64_t nodes_free_hugetlb_bytes(const struct actmem_nodes *nodes, uint64_t page_bytes);
uint64_t nodes_all_hugetlb_bytes(const struct actmem_nodes *nodes, uint64_t page_bytes);

/* Returns how many bytes on these nodes are free or can be freed by the kernel at once. */
uint64_t nodes_available_bytes(const struct actmem_nodes *nodes);

/*
 * Asks the kernel for the node of every page of @page_bytes in the range. Calls @see with the
 * number and the node of each page; the node is a negative errno if the page is on no node. If @see
 * returns an error, the walk ends and returns that error.
 */
int pages_walk(void *address, uint64_t length, uint64_t page_bytes,
	       int (*see)(void *context, uint64_t page, int node), void *context);

/* Returns the number of entries of @node_bytes without the zeros at the end. */
uint32_t nodes_told(const uint64_t node_bytes[ACTMEM_NODES_MAX]);

/* Adds to each entry of @node_bytes the bytes of the range that are on the entry's node. */
int pages_count(void *address, uint64_t length, uint64_t page_bytes,
		uint64_t node_bytes[ACTMEM_NODES_MAX]);

#endif /* LIB_MACHINE_NODE_H */
