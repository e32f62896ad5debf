/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Whatever call fails while a runtime is opened and a region is registered with it,
 * nothing is left behind. Those of accelerators are in tests/cuda.
 */
#include <errno.h>

#include "actmem_runtime.h"
#include "faults.h"

#undef fail			/* cmocka has one too */
#include "runtime/inside.h"

#define LENGTH	(4ULL << 20)

static int teardown(void **state)
{
	fail_nothing();
	return 0;
}

struct rig {
	struct actmem *am;
	struct actmem_region *region;	/* of no page */
};

static struct rig set_up(void)
{
	struct rig rig;

	assert_int_equal(open_small(&rig.am), 0);
	assert_int_equal(create_region(rig.am, LENGTH, ACTMEM_REGION_LAZY, &rig.region), 0);
	return rig;
}

static int register_once(void *context)
{
	const struct rig *rig = context;
	struct actmem_runtime_options options;
	struct actmem_runtime *runtime;
	int error;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_NULL;
	error = actmem_runtime_open(rig->am, &options, &runtime);
	if (error)
		return error;
	error = actmem_region_register(rig->region, runtime, 0);
	fail_nothing();
	assert_true(!error || *actmem_error());
	assert_int_equal(actmem_region_unregister(rig->region), error ? -ENOENT : 0);
	assert_int_equal(actmem_runtime_close(runtime), 0);
	assert_int_equal(actmem_region_discard(rig->region, 0, LENGTH), 0);
	return error;
}

static void test_every_failure(void **state)
{
	struct rig rig = set_up();

	fail_each(register_once, &rig, 3);
	assert_int_equal(actmem_region_close(rig.region), 0);
	assert_int_equal(actmem_close(rig.am), 0);
}

#define MIB	(1ULL << 20)
#define GIB	(1ULL << 30)

/* Pieces are as long as what 5 ms suffice for, within bounds; times are told, not measured. */
static void test_pieces(void **state)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options), .kind = ACTMEM_RUNTIME_NULL,
	};
	struct actmem_runtime *runtime;
	struct actmem *am;
	unsigned int i;

	assert_int_equal(open_small(&am), 0);
	assert_int_equal(actmem_runtime_open(am, &options, &runtime), 0);
	assert_int_equal(runtime_piece_bytes(runtime), 64 * MIB);
	for (i = 0; i < 40; i++)
		pace_learn(runtime, 512 * MIB, 10 * NS_PER_MS);
	assert_in_range(runtime_piece_bytes(runtime), 252 * MIB, 256 * MIB);
	pace_learn(runtime, 256 * MIB, 10 * NS_PER_MS);
	assert_int_equal(runtime_piece_bytes(runtime), 128 * MIB);
	pace_learn(runtime, 64 * MIB, NS_PER_SECOND);
	assert_int_equal(runtime_piece_bytes(runtime), 64 * MIB);
	/* A short call tells nothing of the rate. */
	pace_learn(runtime, 2 * MIB, 1);
	assert_int_equal(runtime_piece_bytes(runtime), 64 * MIB);
	for (i = 0; i < 40; i++)
		pace_learn(runtime, 64 * GIB, 0);
	assert_in_range(runtime_piece_bytes(runtime), 252 * MIB, 256 * MIB);
	assert_int_equal(actmem_runtime_close(runtime), 0);

	options.chunk_bytes = 32 * MIB;
	assert_int_equal(actmem_runtime_open(am, &options, &runtime), 0);
	assert_int_equal(runtime_piece_bytes(runtime), 32 * MIB);
	assert_int_equal(actmem_runtime_close(runtime), 0);
	assert_int_equal(actmem_close(am), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_every_failure, teardown),
		cmocka_unit_test(test_pieces),
	};

	return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
