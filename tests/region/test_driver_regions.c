/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the driver backend asks of a driver for a region, and makes of its answers:
 * refusals in words, steps down. The driver is a function here, as in test_driver.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "machine/node.h"
#include "faults_driver.h"

static struct actmem *am;
static struct holdings before;

static int set_up(void **state)
{
	driver_setup(state);
	am = open_driver();
	before = held_now();
	return 0;
}

/* Whatever a test had, it has given back. */
static int tear_down(void **state)
{
	assert_same_held(before);
	return actmem_close(am) || driver_teardown(state);
}

static int create(uint32_t allow, struct actmem_region **region)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .policy = ACTMEM_PLACE_BIND,
		.nodes.word[0] = 6, .flags = ACTMEM_REGION_INHERIT, .allow = allow, .name = "unit",
	};

	return actmem_region_create(am, &options, region);
}

static void test_request(void **state)
{
	uint64_t node_bytes[3] = { 1, 1, 1 };
	struct actmem_region_info info = { .size = sizeof(info) };
	struct actmem_region *region;

	assert_int_equal(create(0, &region), 0);
	assert_int_equal(driver.asked[0].size, sizeof(struct actmem_ioctl_create));
	assert_int_equal(driver.asked[0].length, LENGTH);
	assert_int_equal(driver.asked[0].page_bytes, ACTMEM_PAGE_BYTES);
	assert_int_equal(driver.asked[0].policy, ACTMEM_POLICY_BIND);
	assert_int_equal(driver.asked[0].nodes[0], 6);
	assert_int_equal(driver.asked[0].flags, ACTMEM_CREATE_INHERIT);
	assert_string_equal(driver.asked[0].name, "unit");
	assert_int_equal(driver.changed, ACTMEM_IOC_POPULATE);
	assert_int_equal(driver.range.offset, 0);
	assert_int_equal(driver.range.length, LENGTH);
	assert_int_equal(driver.changes, 1);
	info.node_bytes = node_bytes;
	info.node_count = 3;
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_ptr_equal(info.node_bytes, node_bytes);
	assert_int_equal(info.node_count, 2);
	assert_int_equal(node_bytes[0], 0);
	assert_int_equal(node_bytes[1], LENGTH);
	assert_int_equal(node_bytes[2], 0);
	assert_null(info.path);
	node_bytes[1] = 1;
	info.node_count = 1;
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_int_equal(info.node_count, 2);
	assert_int_equal(node_bytes[1], 1);
	info.node_bytes = NULL;
	assert_fails(actmem_region_get_info(region, &info), EINVAL, "but node_bytes is NULL");
	info.node_count = 0;
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_int_equal(info.node_count, 0);
	assert_int_equal(info.lingering, 1);
	assert_int_equal(info.allocated_bytes, LENGTH / 2);
	assert_int_equal(info.demand_faults, 3);
	assert_int_equal(info.poisoned_bytes, LENGTH / 4);
	assert_int_equal(info.exported_bytes, LENGTH / 8);
	fail_call("ioctl", 1, EINTR);
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	fail_call("ioctl", 1, EIO);
	assert_fails(actmem_region_get_info(region, &info), EIO, "cannot report on");
	assert_int_equal(actmem_region_close(region), 0);
}

static void test_refusals(void **state)
{
	static const struct {
		uint32_t why;
		int error;
		const char *words;
	} cases[] = {
		{ ACTMEM_WHY_NONE, EMFILE, "4.0 MiB" },
		{ ACTMEM_WHY_NODE_FULL, ENOMEM, "node 1 has 3.1 GiB free, but 8.0 GiB are needed" },
		{ ACTMEM_WHY_NODE_FULL, ENOMEM, "ACTMEM_ALLOW_NODE" },
		{ ACTMEM_WHY_NODE_FULL, ENOMEM, "16.0 GiB more are free there" },
		{ ACTMEM_WHY_MEMLOCK, ENOMEM, "RLIMIT_MEMLOCK has 3.1 GiB left, but 8.0 GiB are needed" },
		{ ACTMEM_WHY_MEMCG, ENOMEM, "the memory cgroup has 3.1 GiB left, but 8.0 GiB are needed" },
		{ ACTMEM_WHY_USER_LIMIT, EDQUOT, "limit on the region's user has 3.1 GiB left, but 8.0 GiB are needed" },
		{ ACTMEM_WHY_USER_LIMIT, EDQUOT, "`actmem limit --user SIZE`" },
		{ ACTMEM_WHY_NODE_LIMIT, EDQUOT, "limit on node 1 has 3.1 GiB left, but 8.0 GiB are needed" },
		{ ACTMEM_WHY_NODE_LIMIT, EDQUOT, "`actmem limit --nodes 1 SIZE`" },
		{ ACTMEM_WHY_NODE_LIMIT, EDQUOT, "ACTMEM_ALLOW_NODE" },
		{ ACTMEM_WHY_CPUSET, EPERM, "node 1 is outside this task's cpuset, which has node" },
		{ ACTMEM_WHY_NO_MEMORY_NODE, ENODEV, "node 1 has no memory" },
		{ ACTMEM_WHY_NO_MEMORY_NODE, ENODEV, "others with nodes" },
		{ ACTMEM_WHY_DMEM, EDQUOT, "cgroup's limit on node 1 has 3.1 GiB left, but 8.0 GiB are needed" },
		{ ACTMEM_WHY_DMEM, EDQUOT, "raise actmem/node1 in " },
		{ ACTMEM_WHY_DMEM, EDQUOT, "ACTMEM_ALLOW_NODE" },
		{ ACTMEM_WHY_POISON, EIO, "memory of node 1: the 2 MiB at offset 8589934592" },
		{ 1000, ENOMEM, "4.0 MiB" },
	};
	struct actmem_region *region;
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		driver.created = 0;
		driver.create_error[0] = cases[i].error;
		driver.create.why.reason = cases[i].why;
		driver.create.why.node = 1;
		driver.create.why.wanted = 8ULL << 30;
		driver.create.why.available = (31ULL << 30) / 10;
		driver.create.why.movable = 16ULL << 30;
		assert_fails(create(0, &region), cases[i].error, cases[i].words);
		assert_same_held(before);
		/* Of its pages, as of the region. */
		driver.created = 0;
		driver.create_error[0] = 0;
		driver.range_error = cases[i].error;
		assert_fails(create(0, &region), cases[i].error, cases[i].words);
		assert_null(strstr(actmem_error(), "are populated"));
		assert_same_held(before);
		driver.range_error = 0;
	}
}

/* What a heap takes ahead may be what is too much. */
static void test_refused_heap(void **state)
{
	struct actmem_heap_options options = { .size = sizeof(options), .grow_bytes = 2 * LENGTH };
	struct actmem_heap *heap;
	void *block;

	assert_int_equal(actmem_heap_create(am, &options, &heap), 0);
	driver.create_error[0] = EDQUOT;
	driver.create.why.reason = ACTMEM_WHY_USER_LIMIT;
	assert_fails(actmem_heap_alloc(heap, 1, 0, &block), EDQUOT,
		     "2.0 MiB are needed, but regions are created with 8.0 MiB; lower grow_bytes");
	assert_int_equal(driver.asked[0].length, 2 * LENGTH);
	driver.created = 0;
	assert_fails(actmem_heap_alloc(heap, 2 * LENGTH, 0, &block), EDQUOT,
		     "limit on the region's user");
	assert_null(strstr(actmem_error(), "grow_bytes"));
	assert_int_equal(actmem_heap_destroy(heap), 0);
}

static int create_lazy(struct actmem_region **region)
{
	return create_region(am, LENGTH, ACTMEM_REGION_LAZY, region);
}

static void test_ranges(void **state)
{
	const uint64_t half = LENGTH / 2;
	struct actmem_region *region;

	assert_int_equal(create_lazy(&region), 0);
	assert_int_equal(driver.asked[0].flags, 0);
	assert_int_equal(actmem_region_populate(region, half, half), 0);
	assert_int_equal(driver.changed, ACTMEM_IOC_POPULATE);
	assert_int_equal(driver.range.size, sizeof(driver.range));
	assert_int_equal(driver.range.flags, 0);
	assert_int_equal(driver.range.offset, half);
	assert_int_equal(driver.range.length, half);
	assert_int_equal(actmem_region_discard(region, 0, LENGTH), 0);
	assert_int_equal(driver.changed, ACTMEM_IOC_DISCARD);
	assert_int_equal(driver.range.length, LENGTH);

	assert_int_equal(driver.changes, 2);
	driver.changed = 0;
	assert_fails(actmem_region_populate(region, 4096, half), EINVAL, "whole pages of 2.0 MiB");
	assert_fails(actmem_region_populate(region, half, LENGTH), EINVAL, "region of 4.0 MiB");
	assert_fails(actmem_region_discard(region, 0, 0), EINVAL, "0 bytes at 0");
	assert_fails(actmem_region_discard(region, -half, half), EINVAL, "whole pages");
	assert_int_equal(driver.changed, 0);

	driver.range_error = EBUSY;
	assert_fails(actmem_region_discard(region, 0, LENGTH), EBUSY, "2.0 MiB of 4.0 MiB cannot be discarded");
	driver.range_error = EIO;
	assert_fails(actmem_region_discard(region, 0, LENGTH), EIO, "cannot discard 4.0 MiB");
	assert_fails(actmem_region_populate(region, 0, LENGTH), EIO, "cannot populate 4.0 MiB");
	driver.range_error = ENOMEM;
	driver.create.why.reason = ACTMEM_WHY_NODE_FULL;
	driver.create.why.node = 1;
	assert_fails(actmem_region_populate(region, 0, LENGTH), ENOMEM, "node 1 has 0 B free");
	assert_non_null(strstr(actmem_error(), "the first 2.0 MiB of the 4.0 MiB are populated"));
	/* Pages count for who made the region, not for who has them come. */
	driver.range_error = EDQUOT;
	driver.create.why.reason = ACTMEM_WHY_USER_LIMIT;
	assert_fails(actmem_region_populate(region, 0, LENGTH), EDQUOT, "limit on the region's user");
	driver.create.why.reason = ACTMEM_WHY_MEMLOCK;
	assert_fails(actmem_region_populate(region, 0, LENGTH), EDQUOT, "in the process that creates the region");
	assert_int_equal(actmem_region_close(region), 0);

	driver.create.why.reason = ACTMEM_WHY_NONE;
	driver.create_error[1] = EINVAL;
	assert_fails(create_lazy(&region), EINVAL, "Invalid argument");
}

static void test_other_node(void **state)
{
	/* A node that is full, one that is so when pages are made, and one at its limit. */
	static const struct {
		int create_error, range_error;
		uint32_t why;
		const char *words;
	} others[] = {
		{ ENOMEM, 0, ACTMEM_WHY_NODE_FULL, "node 2 has" },
		{ 0, ENOMEM, ACTMEM_WHY_NODE_FULL, "node 2 has" },
		{ EDQUOT, 0, ACTMEM_WHY_NODE_LIMIT, "limit on node 2 has" },
	};
	/* Another node would not help against these, nor does it help if all are full. */
	static const struct {
		int error, other_error;
		uint32_t why;
		const char *words;
		unsigned int tried;
	} refused[] = {
		{ EDQUOT, 0, ACTMEM_WHY_USER_LIMIT, "limit on the region's user", 1 },
		{ ENOMEM, 0, ACTMEM_WHY_MEMLOCK, "RLIMIT_MEMLOCK", 1 },
		{ ENOMEM, ENOMEM, ACTMEM_WHY_NODE_FULL, "node 2", 2 },
	};
	struct actmem_counters counters = { .size = sizeof(counters) };
	struct actmem_region *region;
	unsigned int i;

	driver.create.why.node = 2;
	for (i = 0; i < 3; i++) {
		driver.created = driver.changes = 0;
		driver.create_error[0] = others[i].create_error;
		driver.range_error = others[i].range_error;
		driver.populate_errors = !!others[i].range_error;
		driver.create.why.reason = others[i].why;
		assert_int_equal(create(ACTMEM_ALLOW_NODE, &region), 0);
		assert_non_null(strstr(actmem_error(), others[i].words));
		assert_non_null(strstr(actmem_error(), "instead"));
		assert_int_equal(driver.asked[1].policy, ACTMEM_POLICY_PREFERRED);
		assert_int_equal(driver.asked[1].nodes[0], 2);
		assert_int_equal(actmem_get_counters(am, &counters), 0);
		assert_int_equal(counters.fallbacks_total, i + 1);
		assert_int_equal(actmem_region_close(region), 0);
		memset(driver.asked, 0, sizeof(driver.asked));
	}
	for (i = 0; i < 3; i++) {
		driver.created = 0;
		driver.create_error[0] = refused[i].error;
		driver.create_error[1] = refused[i].other_error;
		driver.create.why.reason = refused[i].why;
		assert_fails(create(ACTMEM_ALLOW_NODE, &region), refused[i].error,
			     refused[i].words);
		assert_int_equal(driver.created, refused[i].tried);
	}
}

static int create_1g(uint64_t length, uint32_t flags, uint32_t allow)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = length, .pages = ACTMEM_PAGES_1G,
		.policy = ACTMEM_PLACE_BIND, .nodes.word[0] = 1, .flags = flags, .allow = allow,
	};
	struct actmem_region *region;
	int error;

	error = actmem_region_create(am, &options, &region);
	if (!error)
		assert_int_equal(actmem_region_close(region), 0);
	return error;
}

/* Left to choose, memfd is asked for them, beside a driver that is used otherwise. */
static void test_giant_pages(void **state)
{
	const enum actmem_backend backends[] = { ACTMEM_BACKEND_AUTO, ACTMEM_BACKEND_MEMFD };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		assert_int_equal(open_backend(&am, backends[i]), 0);
		assert_int_equal(actmem_get_backend(am),
				 i ? ACTMEM_BACKEND_MEMFD : ACTMEM_BACKEND_DRIVER);
		before = held_now();
		assert_fails(create_1g(GIANT_PAGE_BYTES + HUGE_PAGE_BYTES, 0, 0), EINVAL,
			     "a multiple of the page size, 1073741824");
		fail_call("memfd_create", 1, ENODEV);
		assert_fails(create_1g(GIANT_PAGE_BYTES, 0, 0), EOPNOTSUPP,
			     "has no 1 GiB hugetlb pages; allow other pages with ACTMEM_ALLOW_2M");
		fail_call("mmap", 1, ENOMEM);
		/* More than any machine has. */
		assert_fails(create_1g(GIANT_PAGE_BYTES << 16, 0, 0), ENOMEM,
			     "free, but 64.0 TiB are needed in 1 GiB hugetlb pages");
		assert_non_null(strstr(actmem_error(), "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages"));
		assert_non_null(strstr(actmem_error(), "boot with hugepagesz=1G hugepages="));
		assert_same_held(before);
		assert_int_equal(actmem_close(am), 0);
	}
	assert_int_equal(driver.created, 0);
}

static void test_backend_of_giant_pages(void **state)
{
	struct actmem_options options = { .size = sizeof(options), .pages = ACTMEM_PAGES_1G };

	assert_int_equal(actmem_open(&am, &options), 0);
	assert_int_equal(actmem_get_backend(am), ACTMEM_BACKEND_MEMFD);
	assert_string_equal(actmem_describe(am),
			    "memfd: 1G pages come from hugetlb, and the driver has only 2M pages");
	assert_int_equal(actmem_close(am), 0);
	options.backend = ACTMEM_BACKEND_DRIVER;
	assert_int_equal(actmem_open(&am, &options), 0);
	assert_int_equal(actmem_get_backend(am), ACTMEM_BACKEND_DRIVER);
	assert_int_equal(actmem_close(am), 0);
}

/* The driver, asked for, has its own pages alone, for who allows those. */
static void test_no_giant_pages(void **state)
{
	struct actmem_counters counters = { .size = sizeof(counters) };

	assert_fails(create_1g(GIANT_PAGE_BYTES, 0, ACTMEM_ALLOW_THP | ACTMEM_ALLOW_4K),
		     EOPNOTSUPP, "the driver has only 2M pages; 1G pages come from hugetlb with the backend memfd: ");
	assert_non_null(strstr(actmem_error(), "with backend"));
	assert_non_null(strstr(actmem_error(), "ACTMEM_ALLOW_2M"));
	assert_int_equal(driver.created, 0);
	assert_int_equal(create_1g(GIANT_PAGE_BYTES, ACTMEM_REGION_LAZY, ACTMEM_ALLOW_2M), 0);
	assert_string_equal(actmem_error(),
			    "the driver has only 2M pages; used 2 MiB pages instead");
	assert_int_equal(driver.created, 1);
	assert_int_equal(driver.asked[0].length, GIANT_PAGE_BYTES);
	assert_int_equal(driver.asked[0].flags, 0);
	assert_int_equal(driver.asked[0].policy, ACTMEM_POLICY_BIND);
	/* On another node, too. */
	driver.created = 0;
	driver.create_error[0] = ENOMEM;
	driver.create.why.reason = ACTMEM_WHY_NODE_FULL;
	assert_int_equal(create_1g(GIANT_PAGE_BYTES, 0, ACTMEM_ALLOW_2M | ACTMEM_ALLOW_NODE),
			 0);
	assert_non_null(strstr(actmem_error(), "; used any node instead; the driver has only 2M pages; used"));
	assert_int_equal(actmem_get_counters(am, &counters), 0);
	assert_int_equal(counters.fallbacks_total, 3);
}

/* Pages that are missing are made before. */
static void test_export(void **state)
{
	const uint64_t half = LENGTH / 2;
	struct actmem_region *region;
	int fd = -1;

	assert_int_equal(create_lazy(&region), 0);
	assert_int_equal(actmem_region_export(region, half, half, &fd), 0);
	assert_int_equal(fd, EXPORTED_FD);
	assert_int_equal(driver.changed, ACTMEM_IOC_POPULATE);
	assert_int_equal(driver.range.offset, half);
	assert_int_equal(driver.range.length, half);
	assert_int_equal(driver.exported.size, sizeof(driver.exported));
	assert_int_equal(driver.exported.flags, 0);
	assert_int_equal(driver.exported.offset, half);
	assert_int_equal(driver.exported.length, half);
	assert_int_equal(driver.exported.reserved, 0);
	/* A signal that does not kill is no reason to fail. */
	fail_call("ioctl", 1, EINTR);
	assert_int_equal(actmem_region_export(region, 0, LENGTH, &fd), 0);
	assert_int_equal(actmem_region_close(region), 0);
}

static void test_export_refused(void **state)
{
	static const struct {
		int range_error, export_error, error;
		const char *words;
	} cases[] = {
		{ ENOMEM, 0, ENOMEM, "node 1 has 2.0 MiB free, but 8.0 MiB are needed" },
		{ 0, EOPNOTSUPP, EOPNOTSUPP, "CONFIG_DMA_SHARED_BUFFER" },
		{ 0, ENODATA, ENODATA, "pages are missing" },
		{ 0, EMFILE, EMFILE, "cannot export 4.0 MiB" },
	};
	struct actmem_region *region;
	unsigned int i;

	assert_int_equal(create_lazy(&region), 0);
	driver.create.why = (struct actmem_why){ .reason = ACTMEM_WHY_NODE_FULL, .node = 1,
						 .wanted = 8 << 20, .available = 2 << 20 };
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = -1;

		driver.range_error = cases[i].range_error;
		driver.export_error = cases[i].export_error;
		assert_fails(actmem_region_export(region, 0, LENGTH, &fd), cases[i].error,
			     cases[i].words);
		assert_int_equal(fd, -1);
	}
	assert_int_equal(actmem_region_close(region), 0);
}

static void test_map_fails(void **state)
{
	struct actmem_region *region;
	void *address;

	assert_int_equal(create(0, &region), 0);
	fail_call("mmap", 1, ENOMEM);
	assert_fails(actmem_region_map(region, &address), ENOMEM, "cannot map 4.0 MiB");
	assert_fails(actmem_region_unmap(region), EINVAL, "not mapped");
	fail_nothing();
	assert_int_equal(actmem_region_close(region), 0);
}

#define REGION_TEST(test)	cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REGION_TEST(test_request),
		REGION_TEST(test_refusals),
		REGION_TEST(test_refused_heap),
		REGION_TEST(test_ranges),
		REGION_TEST(test_other_node),
		DRIVER_TEST(test_giant_pages),
		DRIVER_TEST(test_backend_of_giant_pages),
		REGION_TEST(test_no_giant_pages),
		REGION_TEST(test_export),
		REGION_TEST(test_export_refused),
		REGION_TEST(test_map_fails),
	};

	return cmocka_run_group_tests_name("driver_regions", tests, NULL, NULL);
}
