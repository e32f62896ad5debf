/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the driver backend makes of a driver's answers: older and newer ones, none, what
 * it lists. The driver is a function here; the real one is met by programs in a booted
 * kernel.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "faults_driver.h"

static int answer_unknown(int fd, unsigned long request, void *argument)
{
	return ENOTTY;
}

/* Of a driver that is there: an error for AUTO, too, which says how to do without it. */
static void assert_unusable(int error, const char *words)
{
	struct holdings before = held_now();
	struct actmem *am;

	assert_fails(open_backend(&am, ACTMEM_BACKEND_DRIVER), error, words);
	assert_null(strstr(actmem_error(), "instead of the driver"));
	assert_fails(open_backend(&am, ACTMEM_BACKEND_AUTO), error, words);
	assert_non_null(strstr(actmem_error(), "use memfd instead of the driver"));
	assert_same_held(before);
}

/* Where there is none, AUTO takes memfd and says why. */
static void assert_missing(int error, const char *words)
{
	struct holdings before = held_now();
	struct actmem *am;

	assert_fails(open_backend(&am, ACTMEM_BACKEND_DRIVER), error, words);
	assert_same_held(before);
	assert_int_equal(open_backend(&am, ACTMEM_BACKEND_AUTO), 0);
	assert_int_equal(actmem_get_backend(am), ACTMEM_BACKEND_MEMFD);
	assert_memory_equal(actmem_describe(am), "memfd: ", 7);
	assert_non_null(strstr(actmem_describe(am), words));
	assert_int_equal(actmem_close(am), 0);
	assert_same_held(before);
}

static void test_old_driver(void **state)
{
	driver.abi = ACTMEM_ABI_OLDEST - 1;
	driver.abi_oldest = 0;
	assert_unusable(EPROTONOSUPPORT, "driver's version 3 is older than 4");
	driver.error = EPROTONOSUPPORT;
	assert_unusable(EPROTONOSUPPORT, "upgrade the module");
}

static void test_new_driver(void **state)
{
	driver.abi = ACTMEM_ABI_VERSION + 90;
	driver.abi_oldest = ACTMEM_ABI_VERSION + 1;
	assert_unusable(EPROTONOSUPPORT, "this library's version ");
	driver.error = EPROTONOSUPPORT;
	assert_unusable(EPROTONOSUPPORT, "the oldest that the driver (version 9");
	/* A newer one that still takes us. */
	driver.error = 0;
	driver.abi_oldest = ACTMEM_ABI_VERSION;
	assert_int_equal(actmem_close(open_driver()), 0);
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
	assert_missing(ENXIO, "not the actmem driver's");
}

static void test_no_device(void **state)
{
	const struct {
		int error, told;
		const char *words;
		void (*assert)(int error, const char *words);
	} cases[] = {
		{ ENOENT, ENOENT, "does not exist", assert_missing },
		{ ENXIO, ENXIO, "modprobe actmem", assert_missing },
		{ ENODEV, ENXIO, "no driver behind it", assert_missing },
		{ EACCES, EACCES, "join the group actmem", assert_unusable },
		{ EPERM, EPERM, "permission denied", assert_unusable },
	};
	struct actmem *am;
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fail_every("open", cases[i].error);
		cases[i].assert(cases[i].told, cases[i].words);
	}
	fail_every("open", EMFILE);
	assert_fails(open_backend(&am, ACTMEM_BACKEND_AUTO), EMFILE, "/dev/actmem");
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
	assert_int_equal(actmem_region_list(&list, &count), 0);
	assert_int_equal(driver_items(list, count), 511);
	assert_string_equal(list[0].name, "told");
	assert_int_equal(list[510].id, 512);
	assert_int_equal(list[510].node_count, 2);
	assert_int_equal(list[510].node_bytes[0], 0);
	assert_int_equal(list[510].node_bytes[1], LENGTH);
	assert_null(list[510].path);
	free(list);
	fail_call("open", 1, EACCES);
	assert_int_equal(actmem_region_list(&list, &count), 0);
	assert_int_equal(driver_items(list, count), 0);
	assert_non_null(strstr(actmem_error(), "permission denied"));
	free(list);
	fail_call("open", 1, ENOENT);
	assert_int_equal(actmem_region_list(&list, &count), 0);
	assert_string_equal(actmem_error(), "");
	free(list);
	fail_call("ioctl", 2, EIO);
	assert_fails(actmem_region_list(&list, &count), EIO, "does not list");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DRIVER_TEST(test_old_driver),
		DRIVER_TEST(test_new_driver),
		DRIVER_TEST(test_other_answers),
		DRIVER_TEST(test_no_device),
		DRIVER_TEST(test_list),
	};

	return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
