/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the driver backend makes of a driver's answers: older and newer ones,
 * refusals in words, steps down. The driver is a function here; the real one
 * is met by tests/lib in a booted kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "actmem.h"
#include "../../uapi/actmem.h"
#include "faults.h"

#define LENGTH	(4ULL << 20)

/* What the driver answers next. */
static struct {
	int error;		/* of QUERY */
	uint32_t abi, abi_oldest;
	uint64_t page_bytes;
	int create_error[2];	/* of the first and the second CREATE */
	struct actmem_ioctl_create create;
	unsigned int created;
	struct actmem_ioctl_create asked[2];
	int range_error;	/* of POPULATE and DISCARD */
	unsigned long changed;	/* which of them was asked for */
	struct actmem_ioctl_range range;
	uint32_t regions;	/* for LIST: ids 1..regions */
	uint32_t gone;		/* an id that INFO does not know */
} driver;

static int answer_query(struct actmem_ioctl_query *query)
{
	if (query->size != sizeof(*query) || query->flags || query->reserved ||
	    query->abi != ACTMEM_ABI_VERSION || query->abi_oldest != ACTMEM_ABI_OLDEST)
		return EINVAL;
	query->abi = driver.abi;
	query->abi_oldest = driver.abi_oldest;
	query->page_bytes = driver.page_bytes;
	query->max_region_bytes = 16ULL << 40;
	return driver.error;
}

static int answer_create(struct actmem_ioctl_create *create)
{
	unsigned int turn = driver.created++;

	assert_in_range(turn, 0, 1);
	driver.asked[turn] = *create;
	if (driver.create_error[turn]) {
		create->why.reason = driver.create.why.reason;
		create->why.node = driver.create.why.node;
		create->why.wanted = driver.create.why.wanted;
		create->why.available = driver.create.why.available;
		create->why.movable = driver.create.why.movable;
		return driver.create_error[turn];
	}
	create->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	create->id = 77;
	return 0;
}

#define MAKER	4711		/* its user */

static int answer_info(struct actmem_ioctl_info *info)
{
	if (info->id == driver.gone)
		return ENOENT;
	if (info->node_count)
		((uint64_t *)(uintptr_t)info->node_bytes)[1] = LENGTH;
	info->length = LENGTH;
	info->page_bytes = ACTMEM_PAGE_BYTES;
	info->state = ACTMEM_INFO_LINGERING;
	info->uid = MAKER;
	info->allocated_bytes = LENGTH / 2;
	info->demand_faults = 3;
	info->poisoned_bytes = LENGTH / 4;
	info->exported_bytes = LENGTH / 8;
	strcpy(info->name, "told");
	return 0;
}

static int answer_list(struct actmem_ioctl_list *list)
{
	uint64_t *ids = (uint64_t *)(uintptr_t)list->ids;
	uint32_t i;

	if (!list->count)
		return EINVAL;
	for (i = 0; i < list->count && list->after + i < driver.regions; i++)
		ids[i] = list->after + i + 1;
	list->count = i;
	return 0;
}

static int answer_range(unsigned long request, struct actmem_ioctl_range *range)
{
	driver.changed = request;
	driver.range = *range;
	range->done = range->length / 2;
	range->why = driver.create.why;
	return driver.range_error;
}

static int answer(unsigned long request, void *argument)
{
	switch (request) {
	case ACTMEM_IOC_POPULATE:
	case ACTMEM_IOC_DISCARD:
		return answer_range(request, argument);
	case ACTMEM_IOC_QUERY:
		return answer_query(argument);
	case ACTMEM_IOC_CREATE:
		return answer_create(argument);
	case ACTMEM_IOC_INFO:
		return answer_info(argument);
	case ACTMEM_IOC_LIST:
		return answer_list(argument);
	default:
		return ENOTTY;
	}
}

static int answer_unknown(unsigned long request, void *argument)
{
	return ENOTTY;
}

static int setup(void **state)
{
	memset(&driver, 0, sizeof(driver));
	driver.abi = ACTMEM_ABI_VERSION;
	driver.abi_oldest = ACTMEM_ABI_OLDEST;
	driver.page_bytes = ACTMEM_PAGE_BYTES;
	driver.gone = UINT32_MAX;
	fake_device(answer);
	return 0;
}

static int teardown(void **state)
{
	fail_nothing();
	return 0;
}

static int open_backend(struct actmem **am, enum actmem_backend backend)
{
	struct actmem_options options;

	ACTMEM_INIT(&options);
	options.backend = backend;
	return actmem_open(am, &options);
}

static struct actmem *opened(void)
{
	struct actmem *am;

	assert_int_equal(open_backend(&am, ACTMEM_BACKEND_DRIVER), 0);
	return am;
}

static int create(struct actmem *am, uint32_t allow, struct actmem_region **region)
{
	struct actmem_region_options options;

	ACTMEM_INIT(&options);
	options.length = LENGTH;
	options.policy = ACTMEM_PLACE_BIND;
	options.nodes.word[0] = 6;
	options.flags = ACTMEM_REGION_INHERIT;
	options.allow = allow;
	options.name = "unit";
	return actmem_region_create(am, &options, region);
}

/* The driver alone is an error; AUTO takes memfd and says why. */
static void assert_unusable(int error, const char *words)
{
	struct held before = held_now();
	struct actmem *am;

	assert_fails(open_backend(&am, ACTMEM_BACKEND_DRIVER), error, words);
	assert_same_held(before);
	assert_int_equal(open_backend(&am, ACTMEM_BACKEND_AUTO), 0);
	assert_int_equal(actmem_backend(am), ACTMEM_BACKEND_MEMFD);
	assert_memory_equal(actmem_describe(am), "memfd: ", 7);
	assert_non_null(strstr(actmem_describe(am), words));
	assert_int_equal(actmem_close(am), 0);
	assert_same_held(before);
}

static void test_old_driver(void **state)
{
	driver.abi = ACTMEM_ABI_OLDEST - 1;
	driver.abi_oldest = 0;
	assert_unusable(EPROTONOSUPPORT, "driver's version 0 is older than 1");
	driver.error = EPROTONOSUPPORT;
	assert_unusable(EPROTONOSUPPORT, "upgrade the module");
}

static void test_new_driver(void **state)
{
	driver.abi = 9;
	driver.abi_oldest = 7;
	assert_unusable(EPROTONOSUPPORT, "library's version 3 is older than 7");
	driver.error = EPROTONOSUPPORT;
	assert_unusable(EPROTONOSUPPORT, "driver (version 9)");
	/* A newer one that still takes us. */
	driver.error = 0;
	driver.abi_oldest = ACTMEM_ABI_VERSION;
	assert_int_equal(actmem_close(opened()), 0);
}

static void test_other_answers(void **state)
{
	struct actmem *am;

	driver.page_bytes = 4096;
	assert_unusable(EPROTONOSUPPORT, "4.0 KiB");
	driver.page_bytes = ACTMEM_PAGE_BYTES;
	driver.error = EIO;
	/* Not a reason to do without it. */
	assert_fails(open_backend(&am, ACTMEM_BACKEND_AUTO), EIO, "version");
	fake_device(answer_unknown);
	assert_unusable(ENXIO, "not the actmem driver's");
}

static void test_no_device(void **state)
{
	const struct {
		int error;
		int told;
		const char *words;
	} cases[] = {
		{ ENOENT, ENOENT, "does not exist" },
		{ ENXIO, ENXIO, "modprobe actmem" },
		{ ENODEV, ENXIO, "no driver behind it" },
		{ EACCES, EACCES, "join the group actmem" },
		{ EPERM, EPERM, "permission denied" },
	};
	struct actmem *am;
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fail_every("open", cases[i].error);
		assert_fails(open_backend(&am, ACTMEM_BACKEND_DRIVER), cases[i].told,
			     cases[i].words);
		assert_int_equal(open_backend(&am, ACTMEM_BACKEND_AUTO), 0);
		assert_non_null(strstr(actmem_describe(am), cases[i].words));
		assert_int_equal(actmem_close(am), 0);
	}
	fail_every("open", EMFILE);
	assert_fails(open_backend(&am, ACTMEM_BACKEND_AUTO), EMFILE, "/dev/actmem");
}

static void test_request(void **state)
{
	struct actmem *am = opened();
	struct held before = held_now();
	struct actmem_region_info info;
	struct actmem_region *region;

	assert_int_equal(create(am, 0, &region), 0);
	assert_int_equal(driver.asked[0].size, sizeof(struct actmem_ioctl_create));
	assert_int_equal(driver.asked[0].length, LENGTH);
	assert_int_equal(driver.asked[0].page_bytes, ACTMEM_PAGE_BYTES);
	assert_int_equal(driver.asked[0].policy, ACTMEM_POLICY_BIND);
	assert_int_equal(driver.asked[0].nodes[0], 6);
	assert_int_equal(driver.asked[0].flags, ACTMEM_CREATE_INHERIT);
	assert_string_equal(driver.asked[0].name, "unit");
	ACTMEM_INIT(&info);
	assert_int_equal(actmem_region_info(region, &info), 0);
	assert_int_equal(info.node_bytes[1], LENGTH);
	assert_int_equal(info.lingering, 1);
	assert_int_equal(info.allocated_bytes, LENGTH / 2);
	assert_int_equal(info.demand_faults, 3);
	assert_int_equal(info.poisoned_bytes, LENGTH / 4);
	assert_int_equal(info.exported_bytes, LENGTH / 8);
	fail_call("ioctl", 1, EINTR);
	assert_int_equal(actmem_region_info(region, &info), 0);
	fail_call("ioctl", 1, EIO);
	assert_fails(actmem_region_info(region, &info), EIO, "does not tell");
	assert_int_equal(actmem_region_close(region), 0);
	assert_same_held(before);
	assert_int_equal(actmem_close(am), 0);
}

static void test_refusals(void **state)
{
	char own_limit[64];
	const struct {
		uint32_t why;
		int error;
		const char *words;
	} cases[] = {
		{ ACTMEM_WHY_NONE, EMFILE, "4.0 MiB" },
		{ ACTMEM_WHY_NODE_FULL, ENOMEM, "node 1 has 3.1 GiB free of 8.0 GiB wanted" },
		{ ACTMEM_WHY_NODE_FULL, ENOMEM, "ACTMEM_ALLOW=node" },
		{ ACTMEM_WHY_NODE_FULL, ENOMEM, "16.0 GiB more are free there" },
		{ ACTMEM_WHY_MEMLOCK, ENOMEM, "RLIMIT_MEMLOCK has 3.1 GiB left of 8.0 GiB wanted" },
		{ ACTMEM_WHY_MEMCG, ENOMEM, "the memory cgroup has 3.1 GiB left of 8.0 GiB wanted" },
		{ ACTMEM_WHY_USER_LIMIT, EDQUOT, "limit of the region's user has 3.1 GiB left of 8.0 GiB wanted" },
		{ ACTMEM_WHY_USER_LIMIT, EDQUOT, own_limit },
		{ ACTMEM_WHY_USER_LIMIT, EDQUOT, "user_limit_bytes in /sys/class/misc/actmem" },
		{ ACTMEM_WHY_NODE_LIMIT, EDQUOT, "limit of node 1 has 3.1 GiB left of 8.0 GiB wanted" },
		{ ACTMEM_WHY_NODE_LIMIT, EDQUOT, "/sys/class/misc/actmem/node1/limit_bytes" },
		{ ACTMEM_WHY_NODE_LIMIT, EDQUOT, "ACTMEM_ALLOW=node" },
		{ ACTMEM_WHY_CPUSET, EPERM, "node 1 is outside this task's cpuset" },
		{ ACTMEM_WHY_NO_MEMORY_NODE, ENODEV, "node 1 has no memory" },
		{ ACTMEM_WHY_MISPLACED, EIO, "node 1" },
		{ ACTMEM_WHY_POISON, EIO, "memory of node 1: the 2 MiB at offset 8589934592" },
		{ 1000, ENOMEM, "4.0 MiB" },
	};
	struct actmem *am = opened();
	struct held before = held_now();
	struct actmem_region *region;
	unsigned int i;

	snprintf(own_limit, sizeof(own_limit), "users/%u/limit_bytes", geteuid());
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		driver.created = 0;
		driver.create_error[0] = cases[i].error;
		driver.create.why.reason = cases[i].why;
		driver.create.why.node = 1;
		driver.create.why.wanted = 8ULL << 30;
		driver.create.why.available = (31ULL << 30) / 10;
		driver.create.why.movable = 16ULL << 30;
		assert_fails(create(am, 0, &region), cases[i].error, cases[i].words);
		assert_same_held(before);
	}
	assert_int_equal(actmem_close(am), 0);
}

static int create_lazy(struct actmem *am, struct actmem_region **region)
{
	struct actmem_region_options options;

	ACTMEM_INIT(&options);
	options.length = LENGTH;
	options.flags = ACTMEM_REGION_LAZY;
	return actmem_region_create(am, &options, region);
}

static void test_ranges(void **state)
{
	const uint64_t half = LENGTH / 2;
	struct actmem *am = opened();
	struct actmem_region *region;

	assert_int_equal(create_lazy(am, &region), 0);
	assert_int_equal(driver.asked[0].flags, ACTMEM_CREATE_LAZY);
	assert_int_equal(actmem_region_populate(region, half, half), 0);
	assert_int_equal(driver.changed, ACTMEM_IOC_POPULATE);
	assert_int_equal(driver.range.size, sizeof(driver.range));
	assert_int_equal(driver.range.flags, 0);
	assert_int_equal(driver.range.offset, half);
	assert_int_equal(driver.range.length, half);
	assert_int_equal(actmem_region_discard(region, 0, LENGTH), 0);
	assert_int_equal(driver.changed, ACTMEM_IOC_DISCARD);
	assert_int_equal(driver.range.length, LENGTH);

	driver.changed = 0;
	assert_fails(actmem_region_populate(region, 4096, half), EINVAL, "whole pages of 2.0 MiB");
	assert_fails(actmem_region_populate(region, half, LENGTH), EINVAL, "region of 4.0 MiB");
	assert_fails(actmem_region_discard(region, 0, 0), EINVAL, "0 bytes at 0");
	assert_fails(actmem_region_discard(region, -half, half), EINVAL, "whole pages");
	assert_int_equal(driver.changed, 0);

	driver.range_error = EBUSY;
	assert_fails(actmem_region_discard(region, 0, LENGTH), EBUSY, "2.0 MiB of 4.0 MiB stay");
	driver.range_error = EIO;
	assert_fails(actmem_region_discard(region, 0, LENGTH), EIO, "cannot discard 4.0 MiB");
	assert_fails(actmem_region_populate(region, 0, LENGTH), EIO, "cannot populate 4.0 MiB");
	driver.range_error = ENOMEM;
	driver.create.why.reason = ACTMEM_WHY_NODE_FULL;
	driver.create.why.node = 1;
	assert_fails(actmem_region_populate(region, 0, LENGTH), ENOMEM, "node 1 has 0 B free");
	assert_non_null(strstr(actmem_error(), "the first 2.0 MiB of the 4.0 MiB are there"));
	/* Pages count for who made the region, not for who has them come. */
	driver.range_error = EDQUOT;
	driver.create.why.reason = ACTMEM_WHY_USER_LIMIT;
	assert_fails(actmem_region_populate(region, 0, LENGTH), EDQUOT, "users/4711/limit_bytes");
	driver.create.why.reason = ACTMEM_WHY_MEMLOCK;
	assert_fails(actmem_region_populate(region, 0, LENGTH), EDQUOT, "in the process that makes the region");
	driver.range_error = ENOTTY;
	assert_fails(actmem_region_populate(region, 0, LENGTH), EOPNOTSUPP, "upgrade the module");
	assert_fails(actmem_region_discard(region, 0, LENGTH), EOPNOTSUPP, "upgrade the module");
	assert_int_equal(actmem_region_close(region), 0);

	driver.create.why.reason = ACTMEM_WHY_NONE;
	driver.create_error[1] = EINVAL;
	driver.abi = 1;
	assert_fails(create_lazy(am, &region), EOPNOTSUPP, "no lazy regions");
	driver.abi = ACTMEM_ABI_VERSION;
	driver.created = 1;
	assert_fails(create_lazy(am, &region), EINVAL, "Invalid argument");
	assert_int_equal(actmem_close(am), 0);
}

static void test_other_node(void **state)
{
	struct actmem *am = opened();
	struct actmem_counters counters;
	struct actmem_region *region;

	driver.create_error[0] = ENOMEM;
	driver.create.why.reason = ACTMEM_WHY_NODE_FULL;
	driver.create.why.node = 2;
	assert_int_equal(create(am, ACTMEM_ALLOW_NODE, &region), 0);
	assert_non_null(strstr(actmem_error(), "node 2 has"));
	assert_non_null(strstr(actmem_error(), "instead"));
	assert_int_equal(driver.asked[1].policy, ACTMEM_POLICY_PREFERRED);
	assert_int_equal(driver.asked[1].nodes[0], 2);
	ACTMEM_INIT(&counters);
	assert_int_equal(actmem_counters(am, &counters), 0);
	assert_int_equal(counters.fallbacks_total, 1);
	assert_int_equal(actmem_region_close(region), 0);

	/* Nor a node that has reached its limit. */
	driver.created = 0;
	driver.create_error[0] = EDQUOT;
	driver.create.why.reason = ACTMEM_WHY_NODE_LIMIT;
	assert_int_equal(create(am, ACTMEM_ALLOW_NODE, &region), 0);
	assert_non_null(strstr(actmem_error(), "limit of node 2 has"));
	assert_non_null(strstr(actmem_error(), "instead"));
	assert_int_equal(driver.asked[1].policy, ACTMEM_POLICY_PREFERRED);
	assert_int_equal(actmem_region_close(region), 0);

	/* Another node would not help against these. */
	driver.created = 0;
	driver.create.why.reason = ACTMEM_WHY_USER_LIMIT;
	assert_fails(create(am, ACTMEM_ALLOW_NODE, &region), EDQUOT, "limit of the region's user");
	assert_int_equal(driver.created, 1);
	driver.created = 0;
	driver.create_error[0] = ENOMEM;
	driver.create.why.reason = ACTMEM_WHY_MEMLOCK;
	assert_fails(create(am, ACTMEM_ALLOW_NODE, &region), ENOMEM, "RLIMIT_MEMLOCK");
	assert_int_equal(driver.created, 1);
	/* Nor does it help if all are full. */
	driver.created = 0;
	driver.create.why.reason = ACTMEM_WHY_NODE_FULL;
	driver.create_error[1] = ENOMEM;
	assert_fails(create(am, ACTMEM_ALLOW_NODE, &region), ENOMEM, "node 2");
	assert_int_equal(driver.created, 2);
	assert_int_equal(actmem_close(am), 0);
}

/* Those that the driver told of: other processes may have memfds. */
static size_t driver_items(const struct actmem_region_info *list, size_t count)
{
	size_t items = 0;

	while (items < count && list[items].backend == ACTMEM_BACKEND_DRIVER)
		items++;
	return items;
}

static void test_list(void **state)
{
	struct actmem_region_info *list;
	size_t count;

	/* More than one batch, ending with a full one, and one that goes meanwhile. */
	driver.regions = 512;
	driver.gone = 300;
	assert_int_equal(actmem_list(&list, &count), 0);
	assert_int_equal(driver_items(list, count), 511);
	assert_string_equal(list[0].name, "told");
	assert_int_equal(list[510].id, 512);
	free(list);
	fail_call("open", 1, EACCES);
	assert_int_equal(actmem_list(&list, &count), 0);
	assert_int_equal(driver_items(list, count), 0);
	assert_non_null(strstr(actmem_error(), "permission denied"));
	free(list);
	fail_call("open", 1, ENOENT);
	assert_int_equal(actmem_list(&list, &count), 0);
	assert_string_equal(actmem_error(), "");
	free(list);
	fail_call("ioctl", 2, EIO);
	assert_fails(actmem_list(&list, &count), EIO, "does not list");
}

static void test_map_fails(void **state)
{
	struct actmem *am = opened();
	struct held before = held_now();
	struct actmem_region *region;
	void *address;

	assert_int_equal(create(am, 0, &region), 0);
	fail_call("mmap", 1, ENOMEM);
	assert_fails(actmem_region_map(region, &address), ENOMEM, "cannot map 4.0 MiB");
	assert_fails(actmem_region_unmap(region), EINVAL, "not mapped");
	fail_nothing();
	assert_int_equal(actmem_region_close(region), 0);
	assert_same_held(before);
	assert_int_equal(actmem_close(am), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_old_driver, setup, teardown),
		cmocka_unit_test_setup_teardown(test_new_driver, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_device, setup, teardown),
		cmocka_unit_test_setup_teardown(test_request, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ranges, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_node, setup, teardown),
		cmocka_unit_test_setup_teardown(test_list, setup, teardown),
		cmocka_unit_test_setup_teardown(test_map_fails, setup, teardown),
	};

	return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
