/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The node that a device is at, and regions that are on another one: /sys is a folder
 * of the test's, in which the device is where it is not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_test.h"

static struct cuda cuda;

static void test_unknown(struct actmem *am, const char *why)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_region *region = region_or_bail(am, "anywhere");
	struct actmem_nodes nodes;

	memset(&nodes, 0xff, sizeof(nodes));
	returns(actmem_runtime_nodes(runtime, &nodes), 0);
	ok(runtime_info(runtime).node == -1 && !nodes.word[0],
	   "%s: the node is not known, and none is preferred", why);
	ok(!strstr(actmem_runtime_describe(runtime), "at node"), "nor told");
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(!*actmem_error() && !runtime_info(runtime).far_bytes, "no region is far from it");
	returns(actmem_region_unregister(region), 0);
	returns(actmem_region_close(region), 0);
	returns(actmem_runtime_close(runtime), 0);
}

/* A region with these options is made, and is on the device's socket. Closes the runtime. */
static void makes_near(struct actmem *am, struct actmem_runtime *runtime,
		       const struct actmem_region_options *options)
{
	struct actmem_region *region;

	returns(actmem_region_create(am, options, &region), 0);
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(!*actmem_error() && !runtime_info(runtime).far_bytes && !runtime_info(runtime).far_total,
	   "a region that is made there is near");
	returns(actmem_region_unregister(region), 0);
	returns(actmem_region_close(region), 0);
	returns(actmem_runtime_close(runtime), 0);
}

static void test_near(struct actmem *am, unsigned int node)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .policy = ACTMEM_PLACE_BIND,
	};
	char words[32];

	returns(actmem_runtime_nodes(runtime, &options.nodes), 0);
	ok(has_node(&options.nodes, node) && runtime_info(runtime).node == (int)node,
	   "the device is at node %u", node);
	snprintf(words, sizeof(words), "at node %u", node);
	ok(strstr(actmem_runtime_describe(runtime), words), "which its description tells");
	makes_near(am, runtime, &options);
}

static void test_far(struct actmem *am)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_region *region = region_or_bail(am, "far");

	returns(actmem_region_register(region, runtime, 0), 0);
	says("8.0 MiB of 8.0 MiB are not on node 1000");
	says(runtime_info(runtime).text);
	says("actmem_runtime_nodes");
	ok(runtime_info(runtime).far_bytes == LENGTH && runtime_info(runtime).far_total == 1,
	   "what is far is counted");
	ok(registration_of(region).far_bytes == LENGTH, "and told of the region");
	returns(actmem_region_unregister(region), 0);
	ok(!runtime_info(runtime).far_bytes && runtime_info(runtime).far_total == 1,
	   "until it is unregistered");
	returns(actmem_region_close(region), 0);
	returns(actmem_runtime_close(runtime), 0);
}

/* Node 1000 has memory, and is in the socket of @node or in another one. It is in no cpuset. */
static void socket_has(unsigned int node, unsigned int socket_of_1000)
{
	char text[512];

	snprintf(text, sizeof(text), "cd sys/devices/system && mkdir -p node/node%u node/node1000 "
		 "cpu/cpu0/topology cpu/cpu1/topology && echo %u,1000 >node/has_memory && "
		 "echo 0 >node/node%u/cpulist && echo 1 >node/node1000/cpulist && "
		 "echo 0 >cpu/cpu0/topology/physical_package_id && "
		 "echo %u >cpu/cpu1/topology/physical_package_id", node, node, node, socket_of_1000);
	sysfs_has("mkdir -p sys/devices/system");
	sysfs_has(text);
}

/* The task may use a part of the device's socket. */
static void test_part(struct actmem *am, unsigned int node, bool is_device_there)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .policy = ACTMEM_PLACE_BIND,
	};

	returns(actmem_runtime_nodes(runtime, &options.nodes), 0);
	ok(has_node(&options.nodes, node) && !has_node(&options.nodes, 1000),
	   "of the socket, the nodes that the task may use");
	ok(runtime_info(runtime).node == (is_device_there ? (int)node : 1000), "the device is at %d",
	   runtime_info(runtime).node);
	makes_near(am, runtime, &options);
}

/* Nothing goes to another socket, even where it may: the error names what is to be changed. */
static void test_none(struct actmem *am, unsigned int node)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .policy = ACTMEM_PLACE_BIND,
		.flags = ACTMEM_REGION_NEAR, .allow = ACTMEM_ALLOW_NODE,
	};
	struct actmem_heap_options heap_options = {
		.size = sizeof(heap_options), .region = &options,
	};
	struct actmem_region *region;
	struct actmem_heap *heap;
	void *block;

	returns(actmem_runtime_nodes(runtime, &options.nodes), 0);
	ok(has_node(&options.nodes, 1000) && !has_node(&options.nodes, node),
	   "of a socket that the task may not use, the device's node");
	returns(actmem_region_create(am, &options, &region), -EPERM);
	says("node 1000 is outside this task's cpuset, which has node");
	says("choose nodes with ACTMEM_NODES");
	options.length = 0;
	returns(actmem_heap_create(am, &heap_options, &heap), 0);
	returns(actmem_heap_register(heap, runtime, 0), 0);
	returns(actmem_heap_alloc(heap, CHUNK, 0, &block), -EPERM);
	says("node 1000 is outside");
	says("; the device that uses this memory is at node 1000");
	returns(actmem_heap_destroy(heap), 0);
	returns(actmem_runtime_close(runtime), 0);
}

int main(void)
{
	struct actmem_nodes usable = usable_nodes();
	unsigned int node = 0;
	struct usage before;
	struct actmem *am;
	char text[16];

	setenv("STANDIN_CUDA_BUS_IDS", "0000:AF:00.0", 1);
	am = cuda_begin(&cuda, &before);
	if (!cuda.standin_counts) {
		tap_skip("where a real GPU is, its machine knows");
		return tap_end();
	}
	while (!has_node(&usable, node))
		node++;
	sysfs_has("true");
	test_unknown(am, "a device that /sys does not know");
	sysfs_has("mkdir -p sys/bus/pci/devices/0000:af:00.0");
	test_unknown(am, "one without the file");
	device_is_at("0000:af:00.0", "-1");
	test_unknown(am, "one without a node");
	device_is_at("0000:af:00.0", "99999999");
	test_unknown(am, "a node that there cannot be");
	snprintf(text, sizeof(text), "%u", node);
	device_is_at("0000:af:00.0", text);
	test_near(am, node);
	device_is_at("0000:af:00.0", "1000");
	test_far(am);
	socket_has(node, 0);
	test_part(am, node, false);
	device_is_at("0000:af:00.0", text);
	test_part(am, node, true);
	device_is_at("0000:af:00.0", "1000");
	socket_has(node, 1);
	test_none(am, node);
	sysfs_is_true();
	return cuda_end(&cuda, am, before);
}
