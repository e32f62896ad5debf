/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Whatever call fails while a runtime is opened and a region is registered with it,
 * nothing is left behind. Those of accelerators are in tests/cuda.
 */
#include <errno.h>

#include "actmem_runtime.h"
#include "faults.h"

#define LENGTH	(4ULL << 20)

static int teardown(void **state)
{
	fail_nothing();
	return 0;
}

static struct actmem_region *lazy_region(struct actmem **am)
{
	struct actmem_region_options wanted;
	struct actmem_options options;
	struct actmem_region *region;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	options.pages = ACTMEM_PAGES_4K;
	assert_int_equal(actmem_open(am, &options), 0);
	ACTMEM_INIT(&wanted);
	wanted.length = LENGTH;
	wanted.flags = ACTMEM_REGION_LAZY;
	assert_int_equal(actmem_region_create(*am, &wanted, &region), 0);
	return region;
}

static int open_and_register(struct actmem *am, struct actmem_region *region,
			     struct actmem_runtime **runtime)
{
	struct actmem_runtime_options options;
	int error;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_NULL;
	error = actmem_runtime_open(am, &options, runtime);
	if (error)
		return error;
	error = actmem_register(region, *runtime, 0);
	if (error)
		assert_int_equal(actmem_runtime_close(*runtime), 0);
	return error;
}

static void test_every_failure(void **state)
{
	struct actmem_runtime *runtime;
	struct actmem_region *region;
	struct actmem *am;
	unsigned int nth;
	bool reached = true;

	for (nth = 1; reached; nth++) {
		struct held before = held_now();
		int error;

		region = lazy_region(&am);
		fail_nth(nth);
		error = open_and_register(am, region, &runtime);
		reached = fail_nth_was_reached();
		if (error) {
			assert_true(reached && *actmem_error());
			assert_int_equal(actmem_unregister(region), -ENOENT);
		} else {
			assert_int_equal(actmem_unregister(region), 0);
			assert_int_equal(actmem_runtime_close(runtime), 0);
		}
		assert_int_equal(actmem_region_close(region), 0);
		assert_int_equal(actmem_close(am), 0);
		assert_same_held(before);
	}
	assert_true(nth > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_every_failure, teardown),
	};

	return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
