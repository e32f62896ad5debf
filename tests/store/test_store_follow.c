/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a store makes of takes in another order: which counts, what is guessed of a run,
 * how often, and when that is over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "store/store.h"
#include "watch/stats.h"

/* It has a fail() of its own. */
#include <cmocka.h>

#define BLOCKS	1000
#define BYTES	4096

/* A store of which nothing is moved: its blocks are in memory and in files. */
struct rig {
	struct actmem am;
	struct counters counters;
	struct actmem_store store;
	struct store_block blocks[BLOCKS];
	char memory;
};

static int set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct actmem_store *store = &rig->store;
	unsigned int i;

	rig->am.counters = &rig->counters;
	store->am = &rig->am;
	store->queue = (struct actmem_queue *)rig;
	store->budget = 4ULL * BLOCKS * BYTES;
	store->fixed_window = store->budget;
	store->clean.last_first = true;
	schedule_init(&store->schedule);
	store->schedule.clock = BLOCKS;
	link_init(&store->puts);
	link_init(&store->guessed);
	for (i = 0; i < BLOCKS; i++) {
		struct store_block *block = &rig->blocks[i];

		block->bytes = BYTES;
		block->length = BYTES;
		block->memory = &rig->memory;
		block->is_filed = true;
		block->foreseen = (struct want){ .at = 3 * BLOCKS, .put = i + 1 };
		block->place.want = block->foreseen;
		link_init(&block->ended);
		link_init(&block->puts);
		link_init(&block->guessed);
		link_append(&store->puts, &block->puts);
		store_update_counts(store, block);
	}
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;

	schedule_destroy(&rig->store.schedule);
	free(rig);
	return 0;
}

static void take(struct rig *rig, unsigned int number)
{
	store_follow(&rig->store, &rig->blocks[number]);
	link_remove(&rig->blocks[number].puts);
	link_remove(&rig->blocks[number].guessed);
}

/* Takes that nobody has foreseen, so that it is lost. */
static void lose(struct rig *rig)
{
	rig->store.follow.doubt = 6;
	rig->store.follow.is_lost = true;
}

static void test_tried_again(void **state)
{
	struct rig *rig = *state;

	take(rig, 0);
	store_follow(&rig->store, &rig->blocks[1]);
	take(rig, 1);
	take(rig, 2);
	assert_int_equal(rig->store.follow.run, 3);
}

static void assert_guessed(const struct rig *rig, unsigned int number)
{
	assert_int_equal(rig->blocks[number].place.want.at, 0);
	assert_false(link_is_alone(&rig->blocks[number].guessed));
}

static void assert_none_guessed(const struct rig *rig)
{
	const struct store_block *block;
	unsigned int i;

	assert_true(link_is_alone(&rig->store.guessed));
	for (i = 0; i < BLOCKS; i++) {
		block = &rig->blocks[i];
		if (!link_is_alone(&block->puts))
			assert_memory_equal(&block->place.want, &block->foreseen,
					    sizeof(block->foreseen));
	}
}

/* A run is expected to go on for as long again, whatever its blocks are doing. */
static void test_guessed(void **state)
{
	struct rig *rig = *state;
	unsigned int i;

	rig->blocks[12].transfer = TRANSFER_FILL;
	store_update_counts(&rig->store, &rig->blocks[12]);
	lose(rig);
	for (i = 0; i < 10; i++)
		take(rig, i);
	for (; i < 20; i++)
		assert_guessed(rig, i);
	assert_int_not_equal(rig->blocks[i].place.want.at, 0);
	assert_true(want_is_sooner(&rig->blocks[10].place.want, &rig->blocks[19].place.want));
}

/* Another run begins: what the one before would have had is wanted as it was foreseen. */
static void test_another_run(void **state)
{
	struct rig *rig = *state;
	unsigned int i;

	lose(rig);
	for (i = 0; i < 10; i++)
		take(rig, i);
	store_want(&rig->store, &rig->blocks[11],
		   schedule_urgent(&rig->store.schedule));
	for (i = 500; i < 503; i++)
		take(rig, i);
	for (; i < 509; i++)
		assert_guessed(rig, i);
	for (i = 10; i < 20; i++)
		assert_int_equal(rig->blocks[i].place.want.at, i == 11 ? 0 : 3 * BLOCKS);
	assert_true(link_is_alone(&rig->blocks[11].guessed));
}

/* Work for each take does not grow with what is guessed. */
static void test_renewed(void **state)
{
	struct rig *rig = *state;
	unsigned int i;

	lose(rig);
	for (i = 0; i < BLOCKS / 2; i++) {
		take(rig, i);
		if (i > 2)
			assert_guessed(rig, i + 1);
	}
	assert_true(rig->store.schedule.guesses < BLOCKS / 2 * 32);
}

static void test_over(void **state)
{
	struct rig *rig = *state;
	struct actmem_store *store = &rig->store;
	unsigned int i;

	lose(rig);
	for (i = 0; i < 10; i++)
		take(rig, i);
	store->follow.doubt = 1;
	rig->blocks[BLOCKS - 1].place.want.at = store->schedule.clock;
	take(rig, BLOCKS - 1);
	assert_false(store->follow.is_lost);
	assert_none_guessed(rig);
}

/* All blocks go, and others come. */
static void test_another_round(void **state)
{
	struct rig *rig = *state;
	struct actmem_store *store = &rig->store;
	unsigned int i;

	lose(rig);
	for (i = 0; i < 10; i++)
		take(rig, i);
	assert_guessed(rig, 10);
	schedule_live(&store->schedule, 0);
	assert_true(store->schedule.is_falling);
	rig->blocks[BLOCKS - 1].length += BYTES;
	rig->blocks[BLOCKS - 1].counted = 0;
	store_update_counts(store, &rig->blocks[BLOCKS - 1]);
	store_begin_round(store, true);
	assert_false(store->follow.is_lost);
	assert_none_guessed(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tried_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_guessed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_another_run, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_renewed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_over, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_another_round, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
