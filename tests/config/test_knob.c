/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Errors that name options, as each of those reads them who set these.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"

#include <cmocka.h>
#undef fail

#define NAMES_LAST	ACTMEM_NAMES_REPLAY

static void test_every_name(void **state)
{
	unsigned int knob, names;

	for (knob = 0; knob < KNOBS; knob++)
		for (names = 0; names <= NAMES_LAST; names++)
			assert_non_null(knob_name(knob, names));
	assert_string_equal(knob_name(KNOB_DEVICE_RING, ACTMEM_NAMES_C), "ACTMEM_DEVICE_RING");
	assert_string_equal(knob_name(KNOB_PAGES, NAMES_LAST + 1), "pages");
	assert_string_equal(knob_name(KNOB_STRICT_ON, ACTMEM_NAMES_PYTHON), "ACTMEM_STRICT=1");
	assert_string_equal(knob_name(KNOB_POLICY, ACTMEM_NAMES_REPLAY), "ACTMEM_POLICY");
	assert_string_equal(knob_name(KNOB_PAGES, ACTMEM_NAMES_REPLAY), "--pages (ACTMEM_PAGES)");
	assert_string_equal(knob_name(KNOB_BLOCK, ACTMEM_NAMES_C), "block_bytes");
}

static void test_each_reader(void **state)
{
	static const char *const expected[] = {
		[ACTMEM_NAMES_C] = "raise limit_bytes, or lower grow_bytes",
		[ACTMEM_NAMES_VARIABLES] = "raise ACTMEM_HEAP_LIMIT, or lower ACTMEM_HEAP_GROW",
		[ACTMEM_NAMES_RUN] = "raise --heap-limit (ACTMEM_HEAP_LIMIT), or lower --heap-grow (ACTMEM_HEAP_GROW)",
		[ACTMEM_NAMES_PYTHON] = "raise heap_limit= (ACTMEM_HEAP_LIMIT), or lower heap_grow= (ACTMEM_HEAP_GROW)",
		[ACTMEM_NAMES_REPLAY] = "raise --budget, or lower --budget",
	};
	unsigned int names;

	fail(EINVAL, "raise %s", KNOB(HEAP_LIMIT));
	fail_more(", or lower %s", KNOB(HEAP_GROW));
	for (names = 0; names <= NAMES_LAST; names++)
		assert_string_equal(actmem_error_in(names), expected[names]);
	assert_string_equal(actmem_error(), expected[ACTMEM_NAMES_C]);
	/* Words that are put into others keep their marks. */
	fail(EINVAL, "%s; then nothing", fail_words());
	assert_string_equal(actmem_error(), "raise limit_bytes, or lower grow_bytes; then nothing");
}

static void test_variable(void **state)
{
	fail(EINVAL, "%s is '3M'", KNOB_VARIABLE(KNOB_PAGES));
	assert_string_equal(actmem_error(), "ACTMEM_PAGES is '3M'");
	assert_string_equal(actmem_error_in(ACTMEM_NAMES_RUN), "--pages (ACTMEM_PAGES) is '3M'");
	assert_string_equal(actmem_error_in(ACTMEM_NAMES_PYTHON), "pages= (ACTMEM_PAGES) is '3M'");
}

static void test_budget_and_limit(void **state)
{
	fail(ENOMEM, "%s is used up", KNOB(BUDGET));
	assert_string_equal(actmem_error_in(ACTMEM_NAMES_PYTHON | ACTMEM_NAMES_AS_LIMIT),
			    "heap_limit= (ACTMEM_HEAP_LIMIT) is used up");
	fail(ENOMEM, "raise %s", KNOB(HEAP_LIMIT));
	assert_string_equal(actmem_error_in(ACTMEM_NAMES_RUN | ACTMEM_NAMES_AS_BUDGET),
			    "raise --budget (ACTMEM_BUDGET)");
}

/* A name of a file may have any byte in it. */
static void test_no_marks(void **state)
{
	fail(ENOENT, "no file '\x01~\x02" "\x01'");
	assert_string_equal(actmem_error(), "no file '\x01~\x02" "\x01'");
	fail(ENOENT, "ends with ü");
	assert_string_equal(actmem_error(), "ends with ü");
	/* Cut off in a mark. */
	fail(ENOENT, "ends with \x01");
	assert_string_equal(actmem_error(), "ends with ");
}

static void test_too_long(void **state)
{
	char words[16];

	knob_spell(words, sizeof(words), "raise \x01" "A, and so on and on", ACTMEM_NAMES_C);
	assert_int_equal(strlen(words), sizeof(words) - 1);
	knob_spell(words, sizeof(words), "0123456789abcdef", ACTMEM_NAMES_C);
	assert_string_equal(words, "0123456789abcde");
}

/* The last test, as it cannot be undone. */
static void test_program_of_variables(void **state)
{
	fail(EINVAL, "allow %s or %s, or raise %s", KNOB(PAGES), KNOB(ALLOW_4K), KNOB(BUDGET));
	assert_string_equal(actmem_error(), "allow pages or ACTMEM_ALLOW_4K, or raise budget_bytes");
	knobs_are_variables();
	assert_string_equal(actmem_error(),
			    "allow ACTMEM_PAGES or ACTMEM_ALLOW=4k, or raise budget_bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_name),
		cmocka_unit_test(test_each_reader),
		cmocka_unit_test(test_variable),
		cmocka_unit_test(test_budget_and_limit),
		cmocka_unit_test(test_no_marks),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_program_of_variables),
	};

	return cmocka_run_group_tests_name("knob", tests, NULL, NULL);
}
