/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the library says of its options, as those read it who set them from outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/knob_words.h"

static void assert_words(const char *why, bool is_limit, const char *expected)
{
	char words[256];

	knob_words(why, is_limit, words, sizeof(words));
	assert_string_equal(words, expected);
}

static void test_budget(void **state)
{
	assert_words("block 1 has 4.0 MiB, and budget_bytes is 2.0 MiB; raise it", false,
		     "block 1 has 4.0 MiB, and the budget is 2.0 MiB; raise it");
	assert_words("the budget of 2.0 MiB is used up; raise budget_bytes or give spill_paths",
		     false,
		     "the budget of 2.0 MiB is used up; raise the budget or give directories to spill to");
	assert_words("over spill_limit_bytes of 2.0 MiB; raise that", false,
		     "over the spill limit of 2.0 MiB; raise that");
}

static void test_heap_limit(void **state)
{
	assert_words("budget_bytes is 4096; it is at least one page of 2.0 MiB", true,
		     "the heap limit is 4096; it is at least one page of 2.0 MiB");
	assert_words("the budget of 2.0 MiB is used up; raise budget_bytes or give spill_paths",
		     true, "the heap limit of 2.0 MiB is used up; raise it");
	assert_words("use up the budget of 2.0 MiB; raise grow_bytes, or raise budget_bytes", true,
		     "use up the heap limit of 2.0 MiB; raise ACTMEM_HEAP_GROW, or raise the heap limit");
	assert_words("2.0 MiB more are wanted; raise limit_bytes or free blocks", true,
		     "2.0 MiB more are wanted; raise the heap limit or free blocks");
}

/* Of the driver, whose files have such names. */
static void test_others(void **state)
{
	assert_words("as root raise user_limit_bytes or node0/limit_bytes", true,
		     "as root raise user_limit_bytes or node0/limit_bytes");
	assert_words("", false, "");
}

static void test_too_long(void **state)
{
	char words[16];

	knob_words("raise budget_bytes", false, words, sizeof(words));
	assert_string_equal(words, "raise the budge");
	knob_words("0123456789 budget_bytes", true, words, sizeof(words));
	assert_string_equal(words, "0123456789 the ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_heap_limit),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_too_long),
	};

	return cmocka_run_group_tests_name("knob_words", tests, NULL, NULL);
}
