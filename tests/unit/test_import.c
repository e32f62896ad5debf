/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory of others and pages of 1 GiB: what the driver is asked and its refusals
 * in words, the steps down, and the memfd backend's own import as calls fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "actmem.h"
#include "../../uapi/actmem.h"
#include "faults.h"
#include "node.h"

#define LENGTH	(4ULL << 20)

static struct {
	int error;
	struct actmem_why why;
	uint64_t page_bytes;
	struct actmem_ioctl_import asked;
	unsigned int imports;
	struct actmem_ioctl_create created;
	unsigned int creates;
} driver;

static int answer_import(struct actmem_ioctl_import *import)
{
	driver.asked = *import;
	driver.imports++;
	import->why = driver.why;
	if (driver.error)
		return driver.error;
	import->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	import->id = 5;
	import->page_bytes = driver.page_bytes;
	return 0;
}

static int answer_create(struct actmem_ioctl_create *create)
{
	driver.created = *create;
	driver.creates++;
	create->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	create->id = 6;
	return 0;
}

static int answer(unsigned long request, void *argument)
{
	struct actmem_ioctl_query *query = argument;
	struct actmem_ioctl_info *info = argument;

	switch (request) {
	case ACTMEM_IOC_QUERY:
		query->abi = ACTMEM_ABI_VERSION;
		query->abi_oldest = ACTMEM_ABI_OLDEST;
		query->page_bytes = ACTMEM_PAGE_BYTES;
		query->max_region_bytes = 16ULL << 40;
		return 0;
	case ACTMEM_IOC_IMPORT:
		return answer_import(argument);
	case ACTMEM_IOC_CREATE:
		return answer_create(argument);
	case ACTMEM_IOC_COPY:
		return ESTALE;
	case ACTMEM_IOC_INFO:
		info->id = 5;
		info->length = LENGTH;
		info->page_bytes = ACTMEM_PAGE_BYTES;
		info->imported_page_bytes = driver.page_bytes;
		info->state = ACTMEM_INFO_IMPORTED;
		return 0;
	default:
		return ENOTTY;
	}
}

static int setup(void **state)
{
	memset(&driver, 0, sizeof(driver));
	driver.page_bytes = 4096;
	fake_device(answer);
	return 0;
}

static int teardown(void **state)
{
	fail_nothing();
	return 0;
}

static struct actmem *opened(enum actmem_backend backend)
{
	struct actmem_options options;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.backend = backend;
	assert_int_equal(actmem_open(&am, &options), 0);
	return am;
}

static void test_request(void **state)
{
	const struct {
		uint64_t bytes;
		enum actmem_pages pages;
	} kinds[] = {
		{ 4096, ACTMEM_PAGES_4K }, { 65536, ACTMEM_PAGES_4K },
		{ HUGE_PAGE_BYTES, ACTMEM_PAGES_2M }, { GIANT_PAGE_BYTES, ACTMEM_PAGES_1G },
	};
	struct actmem *am = opened(ACTMEM_BACKEND_DRIVER);
	struct holdings before = held_now();
	struct actmem_region_info info;
	struct actmem_region *region;
	unsigned int i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		driver.page_bytes = kinds[i].bytes;
		assert_int_equal(actmem_region_import(am, 0, HUGE_PAGE_BYTES, LENGTH, "unit",
						      &region), 0);
		assert_int_equal(driver.asked.size, sizeof(driver.asked));
		assert_int_equal(driver.asked.flags, 0);
		assert_int_equal(driver.asked.memory_fd, 0);
		assert_int_equal(driver.asked.offset, HUGE_PAGE_BYTES);
		assert_int_equal(driver.asked.length, LENGTH);
		assert_string_equal(driver.asked.name, "unit");
		ACTMEM_INIT(&info);
		assert_int_equal(actmem_region_info(region, &info), 0);
		assert_int_equal(info.imported, 1);
		assert_int_equal(info.page_bytes, kinds[i].bytes);
		assert_int_equal(info.pages, kinds[i].pages);
		assert_fails(actmem_region_discard(region, 0, HUGE_PAGE_BYTES), EOPNOTSUPP,
			     "owner of its file");
		assert_fails(actmem_region_seal(region), EOPNOTSUPP, "owner of its file");
		assert_fails(actmem_region_copy(region, 0, region, HUGE_PAGE_BYTES, 7), ESTALE,
			     "import the memory again");
		assert_int_equal(actmem_region_close(region), 0);
		assert_same_held(before);
	}
	assert_int_equal(actmem_close(am), 0);
}

static void test_refusals(void **state)
{
	const struct {
		uint32_t why;
		int error;
		uint64_t wanted, available;
		const char *words;
	} cases[] = {
		{ ACTMEM_WHY_IMPORT, EINVAL, 0, 0, "neither a memfd nor a file of hugetlbfs or tmpfs" },
		{ ACTMEM_WHY_IMPORT, EINVAL, 9000, 8000, "ends at 8000 bytes, before the 9000" },
		{ ACTMEM_WHY_IMPORT, EPERM, 0, 0, "add F_SEAL_SHRINK" },
		{ ACTMEM_WHY_IMPORT, ENOMEM, 4096, 1024, "first 1.0 KiB of 4.0 KiB" },
		{ ACTMEM_WHY_IMPORT, ENOMEM, 4096, 1024, "nr_hugepages" },
		{ ACTMEM_WHY_IMPORT, EIO, 0, 0, "the hardware has reported an error" },
		{ ACTMEM_WHY_IMPORT, EBUSY, 0, 0, "pass that region's descriptor on" },
		{ ACTMEM_WHY_IMPORT, ESTALE, 0, 0, "truncated" },
		{ ACTMEM_WHY_IMPORT, EXDEV, 0, 0, "cannot be imported" },
		{ ACTMEM_WHY_MEMLOCK, ENOMEM, 4096, 1024, "RLIMIT_MEMLOCK has 1.0 KiB left" },
		{ ACTMEM_WHY_NODE_LIMIT, EDQUOT, 4096, 1024, "limit of node 0" },
		{ ACTMEM_WHY_NONE, EBADF, 0, 0, "descriptor 0 is not open for reading and writing" },
		{ ACTMEM_WHY_NONE, EINVAL, 0, 0, "2 MiB at least" },
		{ ACTMEM_WHY_NONE, EMFILE, 0, 0, "cannot import 4.0 MiB" },
	};
	struct actmem *am = opened(ACTMEM_BACKEND_DRIVER);
	struct holdings before = held_now();
	struct actmem_region *region;
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		driver.error = cases[i].error;
		driver.why.reason = cases[i].why;
		driver.why.wanted = cases[i].wanted;
		driver.why.available = cases[i].available;
		assert_fails(actmem_region_import(am, 0, 0, LENGTH, NULL, &region),
			     cases[i].error, cases[i].words);
		assert_same_held(before);
	}
	driver.error = ENOTTY;
	driver.why.reason = ACTMEM_WHY_NONE;
	assert_fails(actmem_region_import(am, 0, 0, LENGTH, NULL, &region), EOPNOTSUPP,
		     "upgrade the module");
	assert_same_held(before);
	assert_int_equal(actmem_close(am), 0);
}

static int create_1g(struct actmem *am, uint64_t length, uint32_t flags, uint32_t allow)
{
	struct actmem_region_options options;
	struct actmem_region *region;
	int error;

	ACTMEM_INIT(&options);
	options.length = length;
	options.pages = ACTMEM_PAGES_1G;
	options.policy = ACTMEM_PLACE_BIND;
	options.nodes.word[0] = 1;
	options.flags = flags;
	options.allow = allow;
	error = actmem_region_create(am, &options, &region);
	if (!error)
		assert_int_equal(actmem_region_close(region), 0);
	return error;
}

/* On either backend it is hugetlb that does not have them. */
static void test_no_giant_pages(void **state)
{
	const enum actmem_backend backends[] = { ACTMEM_BACKEND_DRIVER, ACTMEM_BACKEND_MEMFD };
	struct holdings before;
	struct actmem *am;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		am = opened(backends[i]);
		before = held_now();
		assert_fails(create_1g(am, GIANT_PAGE_BYTES + HUGE_PAGE_BYTES, 0, 0), EINVAL,
			     "a multiple of the page size, 1073741824");
		fail_call("memfd_create", 1, ENODEV);
		assert_fails(create_1g(am, GIANT_PAGE_BYTES, 0, 0), EOPNOTSUPP,
			     "has no 1 GiB hugetlb pages; allow other pages with ACTMEM_ALLOW=2m");
		fail_call("mmap", 1, ENOMEM);
		/* More than any machine has. */
		assert_fails(create_1g(am, GIANT_PAGE_BYTES << 16, 0, 0), ENOMEM,
			     "free of 64.0 TiB wanted in 1 GiB hugetlb pages");
		assert_non_null(strstr(actmem_error(), "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages"));
		assert_non_null(strstr(actmem_error(), "boot with hugepagesz=1G hugepages="));
		assert_same_held(before);
		assert_int_equal(actmem_close(am), 0);
	}
	assert_int_equal(driver.imports, 0);
	assert_int_equal(driver.creates, 0);
}

static void test_lazy(void **state)
{
	struct actmem *am = opened(ACTMEM_BACKEND_DRIVER);
	struct holdings before = held_now();

	assert_fails(create_1g(am, GIANT_PAGE_BYTES, ACTMEM_REGION_LAZY, 0), EOPNOTSUPP,
		     "no lazy regions of 1 GiB pages");
	assert_int_equal(create_1g(am, GIANT_PAGE_BYTES, ACTMEM_REGION_LAZY, ACTMEM_ALLOW_2M), 0);
	assert_int_equal(driver.created.flags, ACTMEM_CREATE_LAZY);
	assert_int_equal(driver.imports, 0);
	assert_same_held(before);
	assert_int_equal(actmem_close(am), 0);
}

/* To the driver's own pages, to no others, and only where that helps. */
static void test_steps(void **state)
{
	struct actmem *am = opened(ACTMEM_BACKEND_DRIVER);
	struct holdings before = held_now();
	struct actmem_counters counters;

	fail_every("memfd_create", ENODEV);
	assert_fails(create_1g(am, GIANT_PAGE_BYTES, 0, ACTMEM_ALLOW_THP | ACTMEM_ALLOW_4K),
		     EOPNOTSUPP, "ACTMEM_ALLOW=2m");
	assert_int_equal(driver.creates, 0);
	assert_int_equal(create_1g(am, GIANT_PAGE_BYTES, 0, ACTMEM_ALLOW_2M), 0);
	assert_non_null(strstr(actmem_error(), "; took 2 MiB pages instead"));
	assert_int_equal(driver.creates, 1);
	assert_int_equal(driver.created.length, GIANT_PAGE_BYTES);
	assert_int_equal(driver.created.policy, ACTMEM_POLICY_BIND);
	fail_every("memfd_create", EMFILE);
	assert_fails(create_1g(am, GIANT_PAGE_BYTES, 0, ACTMEM_ALLOW_2M), EMFILE, "memfd_create");
	assert_int_equal(driver.creates, 1);
	fail_nothing();
	fake_device(answer);
	ACTMEM_INIT(&counters);
	assert_int_equal(actmem_counters(am, &counters), 0);
	assert_int_equal(counters.fallbacks_total, 1);
	assert_same_held(before);
	assert_int_equal(actmem_close(am), 0);
}

static int memory(void)
{
	int fd = memfd_create("others", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, LENGTH), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static int import_once(int fd)
{
	struct actmem *am = opened(ACTMEM_BACKEND_MEMFD);
	struct actmem_region *region;
	int error = actmem_region_import(am, fd, 0, LENGTH, "unit", &region);

	if (!error)
		assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(actmem_close(am), 0);
	return error;
}

struct import {
	struct actmem *am;
	int fd;
};

static int import_and_close(void *context)
{
	const struct import *import = context;
	struct actmem_region *region;
	int error = actmem_region_import(import->am, import->fd, 0, LENGTH, "unit", &region);

	fail_nothing();
	if (!error)
		assert_int_equal(actmem_region_close(region), 0);
	return error;
}

static void test_sweep(void **state)
{
	struct import import = { opened(ACTMEM_BACKEND_MEMFD), memory() };

	fail_each(import_and_close, &import, 5);
	close(import.fd);
	assert_int_equal(actmem_close(import.am), 0);
}

static void test_memfd_words(void **state)
{
	int fd = memory();

	fail_call("mlock2", 1, ENOMEM);
	assert_fails(import_once(fd), ENOMEM, "RLIMIT_MEMLOCK");
	fail_nothing();
	fake_file_system(0x4d44);
	assert_fails(import_once(fd), EINVAL, "neither a memfd nor");
	fail_nothing();
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_request, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_giant_pages, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lazy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sweep, NULL, teardown),
		cmocka_unit_test_setup_teardown(test_memfd_words, NULL, teardown),
	};

	return cmocka_run_group_tests_name("import", tests, NULL, NULL);
}
