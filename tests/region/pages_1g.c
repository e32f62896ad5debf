/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions of 1 GiB pages. Where there is a driver, left for the library to choose, the
 * machine is the test's own, and if its processor has such pages, one is reserved on
 * node 1; elsewhere the test takes what is reserved. Where there is none, or the driver
 * was asked for: the refusal.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common.h"

#define GIB		(1ULL << 30)
#define POOL		"/sys/devices/system/node/node%u/hugepages/hugepages-1048576kB/%s"

/* Number of 1 GiB pages of a node; -1: it can have none. */
static long pool(unsigned int node, const char *which)
{
	char path[128], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), POOL, node, which);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (read(fd, text, sizeof(text) - 1) < 0)
		tap_bail("%s: %s", path, strerror(errno));
	close(fd);
	return atol(text);
}

static long free_pages(unsigned int node)
{
	return pool(node, "free_hugepages");
}

static void reserve(unsigned int node, const char *pages)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), POOL, node, "nr_hugepages");
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, pages, strlen(pages)) < 0)
		tap_bail("%s: %s", path, strerror(errno));
	close(fd);
	if (pool(node, "nr_hugepages") != atol(pages))
		tap_bail("%s pages of 1 GiB cannot be reserved on node %u", pages, node);
}

static struct actmem_region_options wanted(unsigned int node, uint64_t length)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = length, .pages = ACTMEM_PAGES_1G,
		.policy = ACTMEM_PLACE_BIND,
	};

	add_node(&options.nodes, node);
	options.name = "giant";
	return options;
}

/* Placed, told, listed, mapped at its ends, received, discarded; and then gone. */
static void test_region(struct actmem *am, unsigned int node)
{
	struct actmem_region_options options = wanted(node, GIB);
	struct actmem_region *region, *received;
	struct actmem_region_info info, *listed;
	long before = free_pages(node);
	unsigned int seen = 0;
	size_t count, i;
	char *memory;

	if (!returns(actmem_region_create(am, &options, &region), 0))
		tap_bail("no region of a 1 GiB page");
	ok(!*actmem_error(), "nothing was taken instead");
	ok(free_pages(node) == before - 1, "a page of node %u has gone into it", node);
	info = info_or_bail(region);
	ok(info.pages == ACTMEM_PAGES_1G && info.page_bytes == GIB && info.length == GIB &&
	   info.allocated_bytes == GIB && info.node_bytes[node] == GIB,
	   "it is told to be one page of 1 GiB on node %u", node);
	ok(info.backend == ACTMEM_BACKEND_MEMFD, "of memfd's, whatever the others are");
	returns(actmem_region_list(&listed, &count), 0);
	for (i = 0; i < count; i++)
		if (!strcmp(listed[i].name, "giant") && listed[i].pages == ACTMEM_PAGES_1G &&
		    listed[i].page_bytes == GIB && listed[i].node_count == node + 1 &&
		    listed[i].node_bytes[node] == GIB &&
		    listed[i].backend == ACTMEM_BACKEND_MEMFD)
			seen++;
	ok(seen == 1, "it is listed once (%u)", seen);
	free(listed);
	memory = memory_or_bail(region);
	ok(!((uintptr_t)memory % GIB), "it is mapped at a multiple of 1 GiB");
	memory[0] = 1;
	memory[GIB - 1] = 2;
	ok(node_of(memory) == (int)node, "where the kernel says it is");
	returns(actmem_region_from_fd(am, actmem_region_fd(region), &received), 0);
	ok(info_or_bail(received).pages == ACTMEM_PAGES_1G, "who receives it knows its pages");
	ok(memory_or_bail(received)[0] == 1 && memory_or_bail(received)[GIB - 1] == 2,
	   "and sees what was written");
	returns(actmem_region_close(received), 0);
	returns(actmem_region_discard(region, 0, GIB), 0);
	ok(free_pages(node) == before, "it is free again when it is discarded");
	options.length = 64 * GIB;
	returns(actmem_region_create(am, &options, &received), -ENOMEM);
	says("free, but 64.0 GiB are needed in 1 GiB hugetlb pages");
	returns(actmem_region_close(region), 0);
	ok(free_pages(node) == before, "the page is free again");
}

/* Of lazy regions, since to zero a page takes a while. */
static void test_heap(struct actmem *am)
{
	struct actmem_region_options region = wanted(1, 0);
	struct actmem_heap_options options = { .size = sizeof(options) };
	struct actmem_heap_stats stats = { .size = sizeof(stats) };
	struct actmem_heap *heap;
	void *block;

	region.flags = ACTMEM_REGION_LAZY;
	options.region = &region;
	options.limit_bytes = GIB - 2 * MIB;
	returns(actmem_heap_create(am, &options, &heap), 0);
	returns(actmem_heap_alloc(heap, MIB, 0, &block), -ENOMEM);
	says("1.0 GiB more; raise limit_bytes");
	returns(actmem_heap_destroy(heap), 0);
	options.limit_bytes = GIB;
	options.grow_bytes = 6 * MIB;
	returns(actmem_heap_create(am, &options, &heap), 0);
	if (!returns(actmem_heap_alloc(heap, MIB, 0, &block), 0))
		tap_bail("no block");
	returns(actmem_heap_get_stats(heap, &stats), 0);
	ok(stats.regions == 1 && stats.region_bytes == GIB, "it grew by 1 GiB");
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_destroy(heap), 0);
}

/* The one page that there is lies on node 1: for node 0 only who allows that has it. */
static bool hold_other_node(void *context)
{
	struct actmem_region_options options = wanted(0, GIB);
	struct actmem_region *region;
	struct actmem *am;

	if (actmem_open(&am, NULL) || actmem_region_create(am, &options, &region) != -ENOMEM ||
	    !strstr(actmem_error(), "node 0 has 0 B free, but 1.0 GiB are needed"))
		return false;
	options.allow = ACTMEM_ALLOW_NODE;
	return !actmem_region_create(am, &options, &region) &&
	       strstr(actmem_error(), "on any node instead") && fallbacks(am) == 1 &&
	       info_or_bail(region).node_bytes[1] == GIB && memory_or_bail(region);
}

static void test_other_node(void)
{
	pid_t child = holder(hold_other_node, NULL);

	ok(!free_pages(1), "a child has the page of the other node, which is told and counted");
	kill_and_wait(child);
	ok(free_pages(1) == 1, "it was killed, and the page is free again");
}

/* With nothing reserved there are other pages for who allows them. */
static void test_step_down(struct actmem *am)
{
	struct actmem_region_options options = wanted(1, GIB);
	uint64_t before = fallbacks(am);
	struct actmem_region *region;

	returns(actmem_region_create(am, &options, &region), -ENOMEM);
	says("node 1 has 0 B free, but 1.0 GiB are needed in 1 GiB hugetlb pages; as root add 1 to /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages");
	says("hugepagesz=1G hugepages=1");
	options.flags = ACTMEM_REGION_LAZY;
	options.allow = ACTMEM_ALLOW_2M | ACTMEM_ALLOW_4K;
	returns(actmem_region_create(am, &options, &region), 0);
	says("used 4 KiB pages instead");
	ok(info_or_bail(region).pages == ACTMEM_PAGES_4K && fallbacks(am) == before + 1,
	   "it is told and counted");
	returns(actmem_region_close(region), 0);
}

static struct actmem *open_driver(void)
{
	struct actmem_options options;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_DRIVER;
	if (actmem_open(&am, &options))
		tap_bail("actmem_open");
	return am;
}

/* The driver, asked for, has 2 MiB pages alone, for who allows them. */
static void test_driver(void)
{
	struct actmem_region_options options = wanted(0, GIB);
	struct actmem *am = open_driver();
	struct actmem_region *region;

	/* One node may have less. */
	options.policy = ACTMEM_PLACE_PREFERRED;
	returns(actmem_region_create(am, &options, &region), -EOPNOTSUPP);
	says("the driver has only 2M pages; 1G pages come from hugetlb with the backend memfd");
	says("ACTMEM_ALLOW=2m");
	options.flags = ACTMEM_REGION_LAZY;
	options.allow = ACTMEM_ALLOW_2M;
	returns(actmem_region_create(am, &options, &region), 0);
	says("used 2 MiB pages instead");
	ok(info_or_bail(region).pages == ACTMEM_PAGES_2M &&
	   info_or_bail(region).backend == ACTMEM_BACKEND_DRIVER && fallbacks(am) == 1,
	   "it is told and counted");
	returns(actmem_region_close(region), 0);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
}

/* A handle for such pages is memfd's, and says why. */
static void test_handle(void)
{
	struct actmem_options options = { .size = sizeof(options), .pages = ACTMEM_PAGES_1G };
	struct actmem *am;

	returns(actmem_open(&am, &options), 0);
	ok(actmem_get_backend(am) == ACTMEM_BACKEND_MEMFD &&
	   strstr(actmem_describe(am), "the driver has only 2M pages"), "%s", actmem_describe(am));
	returns(actmem_close(am), 0);
}

/* A file of a hugetlbfs that has such pages, which outlives who made it. */
static void test_named(struct actmem *am)
{
	struct actmem_region_options options = wanted(1, GIB);
	char folder[] = "/tmp/actmem-test-XXXXXX", path[64];
	struct actmem_region *region;

	options.name = NULL;
	if (!mkdtemp(folder) || mount("none", folder, "hugetlbfs", 0, "pagesize=1G"))
		tap_bail("mount: %s", strerror(errno));
	snprintf(path, sizeof(path), "%s/one", folder);
	returns(actmem_region_open(am, path, &options, ACTMEM_OPEN_CREATE, &region), 0);
	memory_or_bail(region)[GIB - 9] = 9;
	returns(actmem_region_close(region), 0);
	ok(!free_pages(1), "it is still there");
	returns(actmem_region_open(am, path, &options, 0, &region), 0);
	ok(actmem_region_found(region) && info_or_bail(region).pages == ACTMEM_PAGES_1G &&
	   memory_or_bail(region)[GIB - 9] == 9, "it is found as it was left");
	returns(actmem_region_close(region), 0);
	options.pages = ACTMEM_PAGES_2M;
	returns(actmem_region_open(am, path, &options, 0, &region), -EOPNOTSUPP);
	says("mounted with pagesize=2M");
	unlink(path);
	ok(free_pages(1) == 1, "it is gone when it is removed");
	umount(folder);
	rmdir(folder);
}

static void test_own_machine(struct actmem *am)
{
	test_handle();
	test_driver();
	test_step_down(am);
	reserve(1, "1");
	test_region(am, 1);
	test_heap(am);
	test_named(am);
	test_other_node();
	reserve(1, "0");
}

/* Says what is missing, by the name of the knob if there is one. */
static void test_refusal(struct actmem *am)
{
	struct actmem_region_options options = wanted(0, GIB);
	struct actmem_region *region;
	bool has_knob = free_pages(0) >= 0;

	returns(actmem_region_create(am, &options, &region), has_knob ? -ENOMEM : -EOPNOTSUPP);
	says(has_knob ? "0 B free, but 1.0 GiB are needed in 1 GiB hugetlb pages" :
	     "has no 1 GiB hugetlb pages");
	if (has_knob)
		says("node0/hugepages/hugepages-1048576kB/nr_hugepages");
	says("ACTMEM_ALLOW=2m");
	options.length = GIB + 2 * MIB;
	returns(actmem_region_create(am, &options, &region), -EINVAL);
	says("a multiple of the page size, 1073741824");
}

static bool driver_is_asked_for(void)
{
	const char *backend = getenv("ACTMEM_BACKEND");

	return backend && !strcmp(backend, "driver");
}

static void test_here(struct actmem *am)
{
	if (driver_is_asked_for())
		test_driver();
	else if (on_driver(am) && free_pages(1) >= 0)
		test_own_machine(am);
	else if (free_pages(0) > 0)
		test_region(am, 0);
	else
		test_refusal(am);
}

int main(void)
{
	return RUN_TESTS(test_here);
}
