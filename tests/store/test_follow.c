/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Whether takes are as foreseen, and what they follow else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/follow.h"

#define PUTS	30

/* Of puts from 1 on, of which those are left that were not taken. */
struct puts {
	struct follow follow;
	bool is_taken[PUTS + 2];
};

static uint64_t next_of(const struct puts *puts, uint64_t put, int step)
{
	do
		put += (uint64_t)step;
	while (put && put <= PUTS && puts->is_taken[put]);
	return put > PUTS ? 0 : put;
}

static void take(struct puts *puts, enum take_kind kind, uint64_t put)
{
	follow_take(&puts->follow, kind, put, next_of(puts, put, -1), next_of(puts, put, 1));
	puts->is_taken[put] = true;
}

static void test_doubt(void **state)
{
	struct puts puts = { .follow.doubt = 0 };
	unsigned int i;

	take(&puts, TAKE_MISSED, 1);
	take(&puts, TAKE_MISSED, 3);
	take(&puts, TAKE_FORESEEN, 5);
	assert_false(puts.follow.is_lost);
	take(&puts, TAKE_MISSED, 7);
	take(&puts, TAKE_MISSED, 9);
	assert_true(puts.follow.is_lost);
	/* What was there by chance speaks neither for nor against it. */
	for (i = 10; i < 20; i++)
		take(&puts, TAKE_BY_CHANCE, i);
	assert_true(puts.follow.is_lost);
	for (i = 20; i < 27; i++)
		take(&puts, TAKE_FORESEEN, i);
	assert_false(puts.follow.is_lost);
	for (i = 27; i < 30; i++)
		take(&puts, TAKE_MISSED, i);
	assert_true(puts.follow.is_lost);
	follow_reset(&puts.follow);
	assert_false(puts.follow.is_lost);
}

/* Of one that goes on, as much again; also over what was taken before. */
static void test_a_long_run(void **state)
{
	struct puts puts = { .follow.doubt = 0 };
	uint64_t i;

	take(&puts, TAKE_MISSED, 26);
	assert_int_equal(follow_ahead(&puts.follow), 1);
	for (i = 30; i > 20; i--) {
		if (i == 26)
			continue;
		take(&puts, TAKE_MISSED, i);
		assert_false(puts.follow.is_up);
	}
	assert_int_equal(follow_ahead(&puts.follow), 9);
}

/* The rest of one that is as long as the one before, and nothing beyond it. */
static void test_short_runs(void **state)
{
	static const uint64_t first[] = { 9, 21, 3 };
	struct puts puts = { .follow.doubt = 0 };
	unsigned int i, j;

	for (i = 0; i < 3; i++) {
		for (j = 0; j < 3; j++) {
			take(&puts, TAKE_MISSED, first[i] + j);
			if (i)
				assert_int_equal(follow_ahead(&puts.follow), 2 - j);
			if (i || j)
				assert_true(puts.follow.is_up);
		}
	}
}

static void test_no_runs(void **state)
{
	struct puts puts = { .follow.doubt = 0 };
	uint64_t i;

	for (i = 0; i < 10; i++) {
		take(&puts, TAKE_MISSED, 1 + i * 7 % PUTS);
		assert_int_equal(follow_ahead(&puts.follow), !i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_doubt),
		cmocka_unit_test(test_a_long_run),
		cmocka_unit_test(test_short_runs),
		cmocka_unit_test(test_no_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
