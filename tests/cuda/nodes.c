/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The node that a device is at, and regions that are on another one: /sys is a folder
 * of the test's, in which the device is where it is not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_test.h"

static struct cuda cuda;
static char root[] = "/tmp/actmem-sysfs-XXXXXX";

/* The folder of a device in it, of a bus address as CUDA writes it. */
static void make_device(const char *bus_id, char *path, size_t size)
{
	static const char *const folders[] = { "/sys", "/sys/bus", "/sys/bus/pci",
					       "/sys/bus/pci/devices" };
	unsigned int i;

	for (i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, size, "%s%s", root, folders[i]);
		mkdir(path, 0700);
	}
	snprintf(path, size, "%s%s/%s", root, folders[3], bus_id);
	if (mkdir(path, 0700))
		tap_bail("mkdir %s", path);
}

static void write_node(const char *folder, const char *text)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/numa_node", folder);
	file = fopen(path, "we");
	if (!file || fputs(text, file) < 0 || fclose(file))
		tap_bail("%s", path);
}

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

static void test_near(struct actmem *am, unsigned int node)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .policy = ACTMEM_PLACE_BIND,
	};
	struct actmem_region *region;
	char words[32];

	returns(actmem_runtime_nodes(runtime, &options.nodes), 0);
	ok(has_node(&options.nodes, node) && runtime_info(runtime).node == (int)node,
	   "the device is at node %u", node);
	snprintf(words, sizeof(words), "at node %u", node);
	ok(strstr(actmem_runtime_describe(runtime), words), "which its description tells");
	returns(actmem_region_create(am, &options, &region), 0);
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(!*actmem_error() && !runtime_info(runtime).far_bytes && !runtime_info(runtime).far_total,
	   "a region that is made there is near");
	returns(actmem_region_unregister(region), 0);
	returns(actmem_region_close(region), 0);
	returns(actmem_runtime_close(runtime), 0);
}

static void test_far(struct actmem *am)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_region *region = region_or_bail(am, "far");
	struct actmem_registration registration = { .size = sizeof(registration) };

	returns(actmem_region_register(region, runtime, 0), 0);
	says("8.0 MiB of 8.0 MiB are on other nodes than node 1000");
	says(runtime_info(runtime).text);
	says("actmem_runtime_nodes");
	ok(runtime_info(runtime).far_bytes == LENGTH && runtime_info(runtime).far_total == 1,
	   "what is far is counted");
	returns(actmem_region_get_registration(region, &registration), 0);
	ok(registration.far_bytes == LENGTH, "and told of the region");
	returns(actmem_region_unregister(region), 0);
	ok(!runtime_info(runtime).far_bytes && runtime_info(runtime).far_total == 1,
	   "until it is unregistered");
	returns(actmem_region_close(region), 0);
	returns(actmem_runtime_close(runtime), 0);
}

int main(void)
{
	char folder[256], text[16], command[300];
	struct actmem *am;
	struct actmem_nodes usable;
	unsigned int node = 0;

	cuda = cuda_or_skip();
	if (!cuda.standin_counts) {
		tap_skip("where a real GPU is, its machine knows");
		return tap_end();
	}
	setenv("STANDIN_CUDA_BUS_IDS", "0000:AF:00.0", 1);
	if (!mkdtemp(root))
		tap_bail("%s", root);
	sysfs_is_in(root);
	am = open_or_bail();
	usable = usable_nodes();
	while (!has_node(&usable, node))
		node++;
	test_unknown(am, "a device that /sys does not know");
	make_device("0000:af:00.0", folder, sizeof(folder));
	test_unknown(am, "one without the file");
	write_node(folder, "-1\n");
	test_unknown(am, "one without a node");
	write_node(folder, "99999999\n");
	test_unknown(am, "a node that there cannot be");
	snprintf(text, sizeof(text), "%u\n", node);
	write_node(folder, text);
	test_near(am, node);
	write_node(folder, "1000\n");
	test_far(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	nothing_is_retained(&cuda);
	snprintf(command, sizeof(command), "rm -r %s", root);
	returns(system(command), 0);
	return tap_end();
}
