/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the driver backend asks for a dma-buf, and what it makes of the answers. The
 * driver is a function here.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "actmem.h"
#include "region/driver/driver.h"
#include "faults.h"

#define LENGTH	(8ULL << 20)

static struct {
	int error;
	unsigned long fails;
	struct actmem_ioctl_range populated;
	struct actmem_ioctl_export asked;
} driver;

static int answer(int fd, unsigned long request, void *argument)
{
	struct actmem_ioctl_query *query = argument;
	struct actmem_ioctl_create *create = argument;
	struct actmem_ioctl_export *export = argument;
	struct actmem_ioctl_range *range = argument;

	switch (request) {
	case ACTMEM_IOC_QUERY:
		query->page_bytes = ACTMEM_PAGE_BYTES;
		return 0;
	case ACTMEM_IOC_CREATE:
		create->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		return 0;
	case ACTMEM_IOC_POPULATE:
		driver.populated = *range;
		range->done = 0;
		range->why = (struct actmem_why){ .reason = ACTMEM_WHY_NODE_FULL, .node = 1,
						  .wanted = LENGTH, .available = 2 << 20 };
		break;
	case ACTMEM_IOC_EXPORT:
		driver.asked = *export;
		export->fd = 1234;
		break;
	default:
		return ENOTTY;
	}
	return request == driver.fails ? driver.error : 0;
}

static int setup(void **state)
{
	memset(&driver, 0, sizeof(driver));
	fake_device(answer);
	return 0;
}

static int teardown(void **state)
{
	fail_nothing();
	fake_device(NULL);
	return 0;
}

static struct actmem_region *make(struct actmem **am)
{
	struct actmem_options options;
	struct actmem_region *region;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_DRIVER;
	assert_int_equal(actmem_open(am, &options), 0);
	assert_int_equal(create_region(*am, LENGTH, 0, &region), 0);
	return region;
}

static void end(struct actmem *am, struct actmem_region *region)
{
	assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(actmem_close(am), 0);
}

static void test_request(void **state)
{
	struct actmem *am;
	struct actmem_region *region = make(&am);
	int fd = -1;

	assert_int_equal(actmem_region_export(region, 2 << 20, 4 << 20, &fd), 0);
	assert_int_equal(fd, 1234);
	/* Pages that are missing are made before. */
	assert_int_equal(driver.populated.offset, 2 << 20);
	assert_int_equal(driver.populated.length, 4 << 20);
	assert_int_equal(driver.asked.size, sizeof(driver.asked));
	assert_int_equal(driver.asked.flags, 0);
	assert_int_equal(driver.asked.offset, 2 << 20);
	assert_int_equal(driver.asked.length, 4 << 20);
	assert_int_equal(driver.asked.reserved, 0);
	/* A signal that does not kill is no reason to fail. */
	fail_call("ioctl", 1, EINTR);
	assert_int_equal(actmem_region_export(region, 0, LENGTH, &fd), 0);
	end(am, region);
}

static void test_refusals(void **state)
{
	static const struct {
		unsigned long request;
		int error;
		const char *words;
	} cases[] = {
		{ ACTMEM_IOC_POPULATE, ENOMEM, "node 1 has 2.0 MiB free of 8.0 MiB wanted" },
		{ ACTMEM_IOC_EXPORT, EOPNOTSUPP, "CONFIG_DMA_SHARED_BUFFER" },
		{ ACTMEM_IOC_EXPORT, ENODATA, "pages of it are missing" },
		{ ACTMEM_IOC_EXPORT, EMFILE, "cannot export 8.0 MiB" },
	};
	struct actmem *am;
	struct actmem_region *region = make(&am);
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = -1;

		driver.fails = cases[i].request;
		driver.error = cases[i].error;
		assert_fails(actmem_region_export(region, 0, LENGTH, &fd), cases[i].error,
			     cases[i].words);
		assert_int_equal(fd, -1);
	}
	end(am, region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_request, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
	};

	return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
