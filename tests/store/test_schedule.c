/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * When blocks are wanted, and how far to read ahead: what is learned from takes,
 * from rounds and from what a device has done.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "random.h"
#include "store/schedule.h"

/* It has a fail() of its own. */
#include <cmocka.h>

#define PLACES	2000
#define MIB	(1ULL << 20)

static uint64_t seed;

static const struct order_place *first_of(const struct order_place *places, const bool *is_in,
					  bool last_first)
{
	const struct order_place *first = NULL;
	unsigned int i;

	for (i = 0; i < PLACES; i++) {
		if (!is_in[i])
			continue;
		if (!first || (last_first ? want_is_sooner(&first->want, &places[i].want) :
			       want_is_sooner(&places[i].want, &first->want)))
			first = &places[i];
	}
	return first;
}

/* Beside an array that is searched whole. */
static void try_order(bool last_first)
{
	static struct order_place places[PLACES];
	static bool is_in[PLACES];
	struct order order = { .last_first = last_first };
	unsigned int round, at;

	for (round = 0; round < 4 * PLACES; round++) {
		at = (unsigned int)random_below(&seed, PLACES);
		if (is_in[at]) {
			order_remove(&order, &places[at]);
		} else {
			places[at].want = (struct want){ random_below(&seed, 50), round };
			order_add(&order, &places[at]);
		}
		is_in[at] = !is_in[at];
		assert_ptr_equal(order.first, first_of(places, is_in, last_first));
	}
	for (at = 0; at < PLACES; at++) {
		if (is_in[at])
			order_remove(&order, &places[at]);
		is_in[at] = false;
	}
	assert_null(order.first);
	assert_int_equal(order.count, 0);
}

static void test_order(void **state)
{
	try_order(false);
	try_order(true);
}

/* One that ends with its test. */
#define SCHEDULE(schedule)						\
	struct schedule schedule __attribute__((cleanup(schedule_destroy)));	\
	schedule_init(&schedule)

static struct actmem_key key_of(uint64_t name)
{
	return (struct actmem_key){ .name = name };
}

static bool is_sooner(struct want want, struct want other)
{
	return want_is_sooner(&want, &other);
}

static void test_unknown(void **state)
{
	struct want first, second, known;
	SCHEDULE(schedule);

	first = schedule_put(&schedule, key_of(1), 0);
	second = schedule_put(&schedule, key_of(2), 0);
	assert_true(is_sooner(second, first));
	schedule_take(&schedule, key_of(3), 0, 0);
	known = schedule_put(&schedule, key_of(3), 0);
	assert_int_equal(known.at, 2);
	assert_true(is_sooner(known, second));
	/* Another turn of a name that is known is as good as another name. */
	assert_int_equal(schedule_put(&schedule, key_of(3), 1).at, WANTED_UNKNOWN);
}

#define NAMES	20

/* Steps in which names are taken in an order of their own: the next is as that one. */
static void run_step(struct schedule *schedule, const unsigned int *takes, bool is_known)
{
	struct want wants[NAMES];
	uint64_t began = schedule->clock;
	unsigned int i;

	for (i = 0; i < NAMES; i++)
		wants[i] = schedule_put(schedule, key_of(i), 0);
	for (i = 0; i < NAMES; i++) {
		if (is_known)
			assert_int_equal(wants[takes[i]].at, began + i + 1);
		schedule_take(schedule, key_of(takes[i]), 0, began);
	}
}

static void test_order_is_learned(void **state)
{
	unsigned int takes[NAMES], other[NAMES], i;
	SCHEDULE(schedule);

	for (i = 0; i < NAMES; i++) {
		takes[i] = i * 7 % NAMES;
		other[i] = NAMES - 1 - i;
	}
	run_step(&schedule, takes, false);
	run_step(&schedule, takes, true);
	run_step(&schedule, takes, true);
	run_step(&schedule, other, false);
	run_step(&schedule, other, true);
}

/* Of micro-batches that are not taken in the order of their puts. */
static void test_instances(void **state)
{
	struct actmem_key first = { 1, 1 }, second = { 1, 2 }, third = { 1, 3 };
	SCHEDULE(schedule);

	schedule_take(&schedule, second, 0, 0);
	schedule_take(&schedule, first, 0, 0);
	assert_int_equal(schedule_put(&schedule, first, 0).at, 4);
	assert_int_equal(schedule_put(&schedule, second, 0).at, 3);
	/* One that was never seen is as the last one of its name. */
	assert_int_equal(schedule_put(&schedule, third, 0).at, 4);
}

/* Of instances that do not recur, as many as there may be, only their names are held. */
static void test_instances_that_do_not_recur(void **state)
{
	struct actmem_key key = { .name = 0 };
	uint64_t serial;
	SCHEDULE(schedule);

	for (serial = 0; serial < 2 * SCHEDULE_HABITS_MAX; serial++) {
		key.name = serial % NAMES;
		key.instance = ACTMEM_INSTANCE_ONCE | serial;
		schedule_take(&schedule, key, 0, schedule.clock - key.name);
	}
	assert_int_equal(schedule.habit_count, NAMES);
	for (key.name = 0; key.name < NAMES; key.name++, key.instance++)
		assert_int_equal(schedule_put(&schedule, key, 0).at,
				 schedule.clock + key.name + 1);
}

static void test_urgent(void **state)
{
	struct want known, first, second;
	SCHEDULE(schedule);

	schedule_take(&schedule, key_of(1), 0, 0);
	known = schedule_put(&schedule, key_of(1), 0);
	first = schedule_urgent(&schedule);
	second = schedule_urgent(&schedule);
	assert_true(is_sooner(first, second));
	assert_true(is_sooner(second, known));
}

static void test_names_are_forgotten(void **state)
{
	uint64_t name;
	SCHEDULE(schedule);

	for (name = 0; name < SCHEDULE_HABITS_MAX / 2; name++)
		schedule_take(&schedule, key_of(name), 0, schedule.clock);
	assert_int_not_equal(schedule_put(&schedule, key_of(0), 0).at, WANTED_UNKNOWN);
	schedule_take(&schedule, key_of(0), 0, schedule.clock);
	/* One name more, and the one that was not seen for longest goes. */
	schedule_take(&schedule, key_of(name), 0, schedule.clock);
	assert_int_equal(schedule.habit_count, SCHEDULE_HABITS_MAX);
	assert_int_equal(schedule_put(&schedule, key_of(1), 0).at, WANTED_UNKNOWN);
	assert_int_not_equal(schedule_put(&schedule, key_of(0), 0).at, WANTED_UNKNOWN);
	assert_int_not_equal(schedule_put(&schedule, key_of(name), 0).at, WANTED_UNKNOWN);
}

static void test_rounds(void **state)
{
	uint64_t bytes;
	unsigned int round;
	SCHEDULE(schedule);

	for (round = 0; round < 3; round++) {
		for (bytes = 1; bytes <= 100; bytes++) {
			schedule_live(&schedule, bytes);
			assert_true(schedule_is_rising(&schedule, bytes));
		}
		/* It does not fall for good before a part of it is gone. */
		schedule_live(&schedule, 95);
		assert_true(schedule_is_rising(&schedule, 95));
		schedule_live(&schedule, 80);
		assert_false(schedule_is_rising(&schedule, 80));
		assert_int_equal(schedule_peak(&schedule), round ? 100 : 0);
		schedule_live(&schedule, 0);
		assert_int_equal(schedule_peak(&schedule), 100);
	}
	/* Smaller rounds make it forget. */
	for (round = 0; round < SCHEDULE_ROUNDS; round++) {
		assert_int_equal(schedule_peak(&schedule), 100);
		schedule_live(&schedule, 30);
		schedule_live(&schedule, 0);
	}
	assert_int_equal(schedule_peak(&schedule), 30);
}

/* Puts between the takes of a round want room that is kept for them. */
static void test_refill(void **state)
{
	unsigned int i;
	SCHEDULE(schedule);

	schedule_live(&schedule, 100);
	for (i = 0; i < 3; i++) {
		schedule_live(&schedule, 70);
		assert_int_equal(schedule_refill(&schedule), i ? 25 : 0);
		schedule_live(&schedule, 95);
	}
	assert_int_equal(schedule_refill(&schedule), 25);
	for (i = 0; i < SCHEDULE_ROUNDS; i++) {
		schedule_live(&schedule, 0);
		assert_int_equal(schedule_refill(&schedule), 25);
		schedule_live(&schedule, 100);
	}
	schedule_live(&schedule, 0);
	assert_int_equal(schedule_refill(&schedule), 0);
}

static void test_bandwidth(void **state)
{
	struct bandwidth bandwidth = { 0 }, other = { 0 };
	uint64_t second = 1000000000, now = second;

	assert_int_equal(bandwidth_busy(&bandwidth, 7), 7);
	/* Pauses do not count, completions at one time and those that failed neither. */
	bandwidth_begin(&bandwidth, 100 * MIB, now);
	bandwidth_begin(&bandwidth, 100 * MIB, now);
	now += second / 10;
	bandwidth_end(&bandwidth, 100 * MIB, true, now);
	assert_int_equal(bandwidth.bytes_per_second, 1000 * MIB);
	bandwidth_end(&bandwidth, 100 * MIB, true, now);
	assert_int_equal(bandwidth.bytes_per_second, 1000 * MIB);
	now += 100 * second;
	bandwidth_begin(&bandwidth, 100 * MIB, now);
	now += second / 5;
	bandwidth_end(&bandwidth, 100 * MIB, false, now);
	assert_int_equal(bandwidth.bytes_per_second, 1000 * MIB);
	assert_int_equal(bandwidth.busy_ns, 0);
	assert_int_equal(bandwidth.under_way, 0);
	/* Of the time of one that was transferred beside one that failed, half is its own. */
	bandwidth_begin(&other, 100 * MIB, now);
	bandwidth_begin(&other, 100 * MIB, now);
	now += second / 5;
	bandwidth_end(&other, 100 * MIB, false, now);
	bandwidth_end(&other, 100 * MIB, true, now);
	assert_int_equal(other.bytes_per_second, 1000 * MIB);
	assert_int_equal(other.under_way, 0);
	assert_in_range(bandwidth_busy(&bandwidth, 1ULL << 40), MIB, 100 * MIB);
}

static void test_window(void **state)
{
	struct bandwidth read = { .bytes_per_second = 1000 * MIB };
	struct pace pace = { 0 };

	pace_put(&pace, 3 * MIB);
	assert_int_equal(pace_window(&pace, &read, MIB, 1000 * MIB), 6 * MIB);
	assert_int_equal(pace_window(&pace, &read, MIB, 8 * MIB), 4 * MIB);
	assert_int_equal(pace_window(&pace, &read, 50 * MIB, 1000 * MIB), 50 * MIB);
	/* In a pause of 100 ms it reads 100 MiB more. */
	pace_take(&pace, 3 * MIB, 1000000000);
	pace_take(&pace, 3 * MIB, 1100000000);
	assert_int_equal(pace_window(&pace, &read, 50 * MIB, 1000 * MIB), 150 * MIB);
	assert_int_equal(pace.length, 3 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_order_is_learned),
		cmocka_unit_test(test_instances),
		cmocka_unit_test(test_instances_that_do_not_recur),
		cmocka_unit_test(test_urgent),
		cmocka_unit_test(test_names_are_forgotten),
		cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_refill),
		cmocka_unit_test(test_bandwidth),
		cmocka_unit_test(test_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
