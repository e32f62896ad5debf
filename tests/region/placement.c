/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The kernel confirms that each page is on the requested node. The library refuses nodes that it
 * cannot have. In a container that forbids mbind(), the kernel may choose the nodes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "refuse.h"

static struct actmem_region *make(struct actmem *am, enum actmem_policy policy,
				  const struct actmem_nodes *nodes)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .policy = policy, .nodes = *nodes,
		.name = "placed",
	};
	struct actmem_region *region;

	return actmem_region_create(am, &options, &region) ? NULL : region;
}

/* Whether page i is on the (i mod @count)-th of @wanted, and info agrees. */
static bool placed(struct actmem_region *region, const unsigned int *wanted, unsigned int count)
{
	uint64_t page_bytes = page_bytes_wanted(), at, node_bytes[ACTMEM_NODES_MAX] = { 0 };
	struct actmem_region_info info;
	unsigned int page = 0;
	char *memory = memory_or_bail(region);
	int node;

	for (at = 0; at < LENGTH; at += page_bytes, page++) {
		/* The driver's pages enter the page table when they are touched. */
		*(volatile char *)(memory + at) = 1;
		node = node_of(memory + at);
		if (node < 0 || (unsigned int)node != wanted[page % count]) {
			printf("# page %u is on node %d, not %u\n", page, node,
			       wanted[page % count]);
			return false;
		}
		node_bytes[node] += page_bytes;
	}
	info = info_or_bail(region);
	return !memcmp(info.node_bytes, node_bytes, sizeof(node_bytes));
}

static void test_each_node(struct actmem *am, enum actmem_policy policy, const char *name)
{
	struct actmem_nodes usable = usable_nodes();
	struct actmem_region *region;
	unsigned int node;

	for (node = 0; node < ACTMEM_NODES_MAX; node++) {
		struct actmem_nodes one = { { 0 } };

		if (!has_node(&usable, node))
			continue;
		add_node(&one, node);
		region = make(am, policy, &one);
		ok(region && placed(region, &node, 1), "%s: every page is on node %u", name, node);
		if (region)
			actmem_region_close(region);
	}
}

static void test_interleave(struct actmem *am)
{
	struct actmem_nodes usable = usable_nodes(), none = { { 0 } };
	unsigned int wanted[ACTMEM_NODES_MAX], count = 0, node;
	struct actmem_region *region;

	for (node = 0; node < ACTMEM_NODES_MAX; node++)
		if (has_node(&usable, node))
			wanted[count++] = node;
	region = make(am, ACTMEM_PLACE_INTERLEAVE, &usable);
	ok(region && placed(region, wanted, count),
	   "page i is on the i-th of the %u nodes in turn", count);
	if (region)
		actmem_region_close(region);
	region = make(am, ACTMEM_PLACE_INTERLEAVE, &none);
	ok(region && placed(region, wanted, count), "no nodes to interleave: all of them");
	if (region)
		actmem_region_close(region);
}

static void test_missing_node(struct actmem *am)
{
	struct actmem_nodes usable = usable_nodes(), one = { { 0 } };
	unsigned int node = 0;
	char words[32];

	while (has_node(&usable, node))
		node++;
	add_node(&one, node);
	snprintf(words, sizeof(words), "node %u ", node);
	ok(!make(am, ACTMEM_PLACE_BIND, &one), "a node without memory is refused");
	says(words);
	add_node(&one, ACTMEM_NODES_MAX - 1);
	ok(!make(am, ACTMEM_PLACE_INTERLEAVE, &one), "also among others");
}

static void test_full_node(struct actmem *am)
{
	struct actmem_nodes usable = usable_nodes();
	struct actmem_region_options options = { .size = sizeof(options) };
	struct actmem_region *region;
	struct actmem_counters before = counters_of(am), after;
	unsigned int node = 0;
	char words[32];

	while (!has_node(&usable, node))
		node++;
	options.length = node_total(node);
	options.policy = ACTMEM_PLACE_BIND;
	add_node(&options.nodes, node);
	returns(actmem_region_create(am, &options, &region), -ENOMEM);
	snprintf(words, sizeof(words), "node %u has ", node);
	says(words);
	says(" free, but ");
	says("ACTMEM_ALLOW=");
	after = counters_of(am);
	ok(!memcmp(&before, &after, sizeof(before)), "a failure counts nothing");
}

static void test_policies(struct actmem *am)
{
	struct actmem_nodes none = { { 0 } }, two = { { 3 } };
	struct actmem_region *region;

	ok(!make(am, ACTMEM_PLACE_BIND, &none), "bind without nodes is refused");
	ok(!make(am, ACTMEM_PLACE_PREFERRED, &two), "preferred with two nodes is refused");
	says("nodes 0-1");
	region = make(am, ACTMEM_PLACE_PREFERRED, &none);
	ok(region, "preferred without a node is the caller's");
	if (region)
		actmem_region_close(region);
}

static void test_all(struct actmem *am)
{
	test_each_node(am, ACTMEM_PLACE_BIND, "bind");
	test_each_node(am, ACTMEM_PLACE_PREFERRED, "preferred");
	test_interleave(am);
	test_missing_node(am);
	test_full_node(am);
	test_policies(am);
}

/* The machines in which the driver is tested have several nodes. */
static void test_memfd(struct actmem *driver)
{
	struct actmem *am;

	if (!on_driver(driver))
		return;
	setenv("ACTMEM_BACKEND", "memfd", 1);
	setenv("ACTMEM_PAGES", "4K", 1);
	am = open_or_bail();
	test_all(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
}

static bool is_placed_by_kernel(void *context)
{
	struct actmem_region_options options = { .size = sizeof(options), .length = LENGTH };
	struct actmem_region *region;
	struct actmem *am;
	bool right;

	setenv("ACTMEM_BACKEND", "memfd", 1);
	setenv("ACTMEM_PAGES", "4K", 1);
	options.allow = ACTMEM_ALLOW_ONLY;
	if (!refuse_call(SYS_mbind, EPERM) || !refuse_call(SYS_move_pages, EPERM) ||
	    actmem_open(&am, NULL))
		return false;
	right = actmem_region_create(am, &options, &region) == -EPERM &&
		strstr(actmem_error(), "CAP_SYS_NICE");
	options.allow = 0;
	add_node(&options.nodes, 0);
	right = right && actmem_region_create(am, &options, &region) == -EPERM;
	memset(&options.nodes, 0, sizeof(options.nodes));
	return right && !actmem_region_create(am, &options, &region) &&
	       strstr(actmem_error(), "CAP_SYS_NICE") &&
	       strstr(actmem_error(), "the kernel chose the nodes") &&
	       !info_or_bail(region).node_count && !actmem_region_populate(region, 0, LENGTH) &&
	       !actmem_region_close(region) && !actmem_close(am);
}

/* As Docker does by default on a machine with several nodes. */
static void test_forbidden(struct actmem *am)
{
	if (on_driver(am))
		ok(in_child(is_placed_by_kernel, NULL),
		   "if mbind() is forbidden, the kernel may choose the nodes, but not for given nodes");
}

int main(void)
{
	return RUN_TESTS(test_all, test_memfd, test_forbidden);
}
