/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Transfers that fail one at a time while blocks come and go: the call that wants the block
 * fails, and works at the next try. A transfer that failed has moved nothing, and memory and
 * room in files have held other blocks before: none of these is ever handed out.
 */
#include "store_rig.h"

#define BLOCKS	12
#define ROUNDS	48

/* One fails at a time, so what is tried again works. */
static int again(struct rig *rig, int (*call)(struct rig *rig, uint64_t name), uint64_t name)
{
	int error = call(rig, name);

	if (error)
		assert_fails(error, EIO, "block ");
	return error ? call(rig, name) : 0;
}

/* No block has a name, and bytes, that one of the rounds before had. */
static void each_fails(enum actmem_engine engine, bool is_short)
{
	unsigned int nth;
	uint64_t i;
	RIG(rig, .engine = engine);

	for (nth = 1; nth <= ROUNDS; nth++) {
		shorten_transfers(is_short);
		fail_transfers(nth, 1, -EIO);
		for (i = 0; i < BLOCKS; i++)
			assert_int_equal(again(&rig, put, nth * BLOCKS + i), 0);
		settle(&rig);
		fail_transfers(nth, 1, -EIO);
		for (i = 0; i < BLOCKS; i++)
			assert_int_equal(again(&rig, take, nth * BLOCKS + (i + nth) % BLOCKS), 0);
	}
	assert_true(stats_of(&rig).failed_spills_total > 0);
	assert_true(stats_of(&rig).failed_fills_total > 0);
}

static void test_auto(void **state)
{
	each_fails(ACTMEM_ENGINE_AUTO, false);
	each_fails(ACTMEM_ENGINE_AUTO, true);
}

static void test_workers(void **state)
{
	each_fails(ACTMEM_ENGINE_WORKERS, false);
	each_fails(ACTMEM_ENGINE_WORKERS, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_workers),
	};

	return cmocka_run_group_tests_name("store_faults", tests, NULL, NULL);
}
