/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The parser of each kind of knob: right and wrong values, and the messages for these.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "faults.h"

#define KIB	(UINT64_C(1) << 10)
#define WRONG	77			/* an error, and the value is that of the table */

/* A reader of one variable. */
static struct reader reader_of(const char *variable)
{
	static const char *variables[2];

	variables[0] = variable;
	return (struct reader){ variables, .names = ACTMEM_NAMES_VARIABLES };
}

static const struct {
	enum knob knob;
	const char *variable;
	uint64_t value;
} cases[] = {
	{ KNOB_HEAP_GROW, "ACTMEM_HEAP_GROW=64k", 64 * KIB },
	{ KNOB_HEAP_GROW, "ACTMEM_HEAP_GROW=9223372036854775807", INT64_MAX },
	{ KNOB_HEAP_GROW, "ACTMEM_HEAP_GROW=", 0 },
	{ KNOB_HEAP_GROW, "ACTMEM_HEAP_GROWS=1", 0 },
	{ KNOB_HEAP_GROW, "ACTMEM_HEAP_GROW=0", WRONG },
	{ KNOB_HEAP_GROW, "ACTMEM_HEAP_GROW=-1", WRONG },
	{ KNOB_HEAP_GROW, "ACTMEM_HEAP_GROW=9223372036854775808", WRONG },
	{ KNOB_HEAP_LIMIT, "ACTMEM_HEAP_LIMIT=18446744073709551616", WRONG },
	{ KNOB_HEAP_LIMIT, "ACTMEM_HEAP_LIMIT=16777216T", WRONG },
	{ KNOB_HEAP_LIMIT, "ACTMEM_HEAP_LIMIT=1MB", WRONG },
	{ KNOB_HEAP_LIMIT, "ACTMEM_HEAP_LIMIT= 1", WRONG },
	{ KNOB_HEAP_LIMIT, "ACTMEM_HEAP_LIMIT=0", 0 },
	{ KNOB_SPILL_LIMIT, "ACTMEM_SPILL_LIMIT=0", 0 },
	{ KNOB_SPILL_LIMIT, "ACTMEM_SPILL_LIMIT=2M", 2048 * KIB },
	{ KNOB_SPILL_LIMIT, "ACTMEM_SPILL_LIMIT=2097151", WRONG },
	{ KNOB_DEVICE_RING, "ACTMEM_DEVICE_RING", 512 * KIB * KIB },
	{ KNOB_DEVICE_RING, "ACTMEM_DEVICE_RING=128K", 128 * KIB },
	{ KNOB_DEVICE_RING, "ACTMEM_DEVICE_RING=0", WRONG },
	{ KNOB_MALLOC_MIN, "ACTMEM_MALLOC_MIN=half", WRONG },
	{ KNOB_MALLOC_DECAY, "ACTMEM_MALLOC_DECAY=31536000", 31536000 },
	{ KNOB_MALLOC_DECAY, "ACTMEM_MALLOC_DECAY=never", UINT64_MAX },
	{ KNOB_MALLOC_DECAY, "ACTMEM_MALLOC_DECAY=", 10 },
	{ KNOB_MALLOC_DECAY, "ACTMEM_MALLOC_DECAY=31536001", WRONG },
	{ KNOB_MALLOC_DECAY, "ACTMEM_MALLOC_DECAY=1K", WRONG },
	{ KNOB_MALLOC_DECAY, "ACTMEM_MALLOC_DECAY=-1", WRONG },
	{ KNOB_MALLOC_DECAY, "ACTMEM_MALLOC_DECAY=18446744073709551616", WRONG },
	{ KNOB_MALLOC_DECAY, "ACTMEM_MALLOC_DECAY=neverx", WRONG },
	{ KNOB_UPDATE_THREADS, "ACTMEM_UPDATE_THREADS=8192", 8192 },
	{ KNOB_UPDATE_THREADS, "ACTMEM_UPDATE_THREADS=0", 0 },
	{ KNOB_UPDATE_THREADS, "ACTMEM_UPDATE_THREADS=8193", WRONG },
	{ KNOB_CUDA, "ACTMEM_CUDA=1", 1 },
	{ KNOB_CUDA, "ACTMEM_CUDA=0", 0 },
	{ KNOB_CUDA, "ACTMEM_CUDA=", 0 },
	{ KNOB_CUDA, "ACTMEM_CUDA=2", WRONG },
	{ KNOB_CUDA, "ACTMEM_CUDA=-1", WRONG },
	{ KNOB_CUDA, "ACTMEM_CUDA=11", WRONG },
	{ KNOB_CUDA, "ACTMEM_CUDA=yes", WRONG },
	{ KNOB_BACKEND, "ACTMEM_BACKEND=auto", ACTMEM_BACKEND_AUTO },
	{ KNOB_BACKEND, "ACTMEM_BACKEND=driver", ACTMEM_BACKEND_DRIVER },
	{ KNOB_BACKEND, "ACTMEM_BACKEND=Memfd", ACTMEM_BACKEND_MEMFD },
	{ KNOB_BACKEND, "ACTMEM_BACKEND=memf", WRONG },
	{ KNOB_BACKEND, "ACTMEM_BACKEND=memfdx", WRONG },
	{ KNOB_BACKEND, "ACTMEM_BACKEND=driver,memfd", WRONG },
	{ KNOB_BACKEND, "ACTMEM_BACKEND=1", WRONG },
	{ KNOB_PAGES, "ACTMEM_PAGES=2m", ACTMEM_PAGES_2M },
	{ KNOB_PAGES, "ACTMEM_PAGES=thp", ACTMEM_PAGES_THP },
	{ KNOB_PAGES, "ACTMEM_PAGES=4K", ACTMEM_PAGES_4K },
	{ KNOB_PAGES, "ACTMEM_PAGES=1G", ACTMEM_PAGES_1G },
	{ KNOB_PAGES, "ACTMEM_PAGES=", ACTMEM_PAGES_DEFAULT },
	{ KNOB_POLICY, "ACTMEM_POLICY=bind", ACTMEM_PLACE_BIND },
	{ KNOB_POLICY, "ACTMEM_POLICY=preferred", ACTMEM_PLACE_PREFERRED },
	{ KNOB_POLICY, "ACTMEM_POLICY=interleave", ACTMEM_PLACE_INTERLEAVE },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=thp", ACTMEM_ALLOW_THP },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=4k", ACTMEM_ALLOW_4K },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=node", ACTMEM_ALLOW_NODE },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=2M,unlocked", ACTMEM_ALLOW_UNLOCKED | ACTMEM_ALLOW_2M },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=any", 0x1f },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=thp,any", 0x1f },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=thp,", WRONG },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=,thp", WRONG },
	{ KNOB_ALLOW, "ACTMEM_ALLOW=thp, 4k", WRONG },
	{ KNOB_SPILL_ALLOW, "ACTMEM_SPILL_ALLOW=Buffered,memory", 6 },
	{ KNOB_SPILL_ALLOW, "ACTMEM_SPILL_ALLOW=any", WRONG },
};

static void test_kinds(void **state)
{
	struct reader reader, unset = { NULL };
	uint64_t value;
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *text = strchr(cases[i].variable, '=');
		bool is_wrong = cases[i].value == WRONG;
		char begin[64];

		reader = reader_of(cases[i].variable);
		value = reader_value(&reader, cases[i].knob);
		if (value != (is_wrong ? reader_value(&unset, cases[i].knob) : cases[i].value))
			fail_msg("%s is %llu", cases[i].variable, (unsigned long long)value);
		if (!is_wrong != !*reader.error)
			fail_msg("%s: '%s'", cases[i].variable, reader.error);
		snprintf(begin, sizeof(begin), "%.*s is '%s', but must be ",
			 (int)strcspn(cases[i].variable, "="), cases[i].variable,
			 text ? text + 1 : "");
		if (is_wrong && strncmp(reader.error, begin, strlen(begin)))
			fail_msg("%s: '%s'", cases[i].variable, reader.error);
	}
}

static void assert_refused(const char *variable, enum knob knob, const char *choice)
{
	struct reader reader = reader_of(variable);
	char message[256];

	reader_value(&reader, knob);
	snprintf(message, sizeof(message), "%.*s is 'x', but must be %s",
		 (int)strcspn(variable, "="), variable, choice);
	assert_string_equal(reader.error, message);
}

static void test_choices(void **state)
{
	assert_refused("ACTMEM_BACKEND=x", KNOB_BACKEND, "one of auto, driver, memfd");
	assert_refused("ACTMEM_SPILL_ALLOW=x", KNOB_SPILL_ALLOW,
		       "one of memory, buffered, or several with commas between them");
	assert_refused("ACTMEM_QUIET=x", KNOB_QUIET, "1 or 0");
	assert_refused("ACTMEM_BUDGET=x", KNOB_BUDGET,
		       "a number of bytes, such as 268435456 or 256M");
	assert_refused("ACTMEM_SPILL_LIMIT=x", KNOB_SPILL_LIMIT,
		       "0 or a number of bytes from 2M on, such as 268435456 or 256M");
	assert_refused("ACTMEM_MALLOC_MIN=x", KNOB_MALLOC_MIN,
		       "a number of bytes from 4K on, such as 268435456 or 256M");
	assert_refused("ACTMEM_HEAP_GROW=x", KNOB_HEAP_GROW,
		       "a number of bytes from 1 on, such as 268435456 or 256M");
	assert_refused("ACTMEM_MALLOC_DECAY=x", KNOB_MALLOC_DECAY,
		       "a number of seconds up to 31536000, or never");
}

static void test_messages(void **state)
{
	struct reader reader = reader_of("ACTMEM_NODES=x");

	/* The first error stays. */
	assert_string_equal(reader_text(&reader, KNOB_NODES), "x");
	reader_refuse(&reader, KNOB_NODES, NULL);
	assert_string_equal(reader.error, "ACTMEM_NODES is 'x', but must be a list such as 0,2-3 of nodes below 1024");
	reader_fail(&reader, "another");
	assert_non_null(strstr(reader.error, "ACTMEM_NODES"));
	reader = reader_of("ACTMEM_NODES=7");
	reader.names = ACTMEM_NAMES_RUN;
	reader_refuse(&reader, KNOB_NODES, "6");
	assert_string_equal(reader.error, "--nodes (ACTMEM_NODES) is '7', but must be 6");
	/* An option without a value cannot be wrong. */
	reader = reader_of("ACTMEM_STRICT=yes");
	reader.names = ACTMEM_NAMES_RUN;
	reader_value(&reader, KNOB_STRICT);
	assert_string_equal(reader.error, "ACTMEM_STRICT is 'yes', but must be 1 or 0");
	/* With marks it is for fail(). */
	reader = reader_of("ACTMEM_PAGES=3M");
	reader.names = NAMES_AS_MARKS;
	reader_value(&reader, KNOB_PAGES);
	(fail)(EINVAL, "%s", reader.error);
	assert_non_null(strstr(actmem_error(), "ACTMEM_PAGES is '3M', "));
	assert_non_null(strstr(actmem_error_in(ACTMEM_NAMES_PYTHON), "pages= (ACTMEM_PAGES) is '3M', "));
}

static void test_given(void **state)
{
	struct reader reader = reader_of("ACTMEM_SPILL_LIMIT=4M");

	assert_int_equal(reader_value_or(&reader, KNOB_SPILL_LIMIT, 0), 4 * KIB * KIB);
	assert_int_equal(reader_value_or(&reader, KNOB_SPILL_LIMIT, 3 * KIB * KIB), 3 * KIB * KIB);
	assert_string_equal(reader.error, "");
	reader_value_or(&reader, KNOB_SPILL_LIMIT, 77);
	assert_non_null(strstr(reader.error, "ACTMEM_SPILL_LIMIT is '77'"));
}

static void test_environment(void **state)
{
	char **saved = environ;
	struct reader reader;
	bool is_set;

	unsetenv("ACTMEM_QUIET");
	assert_false(knob_is_set(KNOB_QUIET) || knob_is_on(KNOB_QUIET));
	setenv("ACTMEM_QUIET", "", 1);
	assert_false(knob_is_set(KNOB_QUIET) || knob_is_on(KNOB_QUIET));
	setenv("ACTMEM_QUIET", "0", 1);
	assert_true(knob_is_set(KNOB_QUIET) && !knob_is_on(KNOB_QUIET));
	setenv("ACTMEM_QUIET", "1", 1);
	assert_true(knob_is_on(KNOB_QUIET));
	setenv("ACTMEM_QUIET", "yes", 1);
	assert_false(knob_is_on(KNOB_QUIET));
	reader = READER(ACTMEM_NAMES_VARIABLES);
	reader_check_values(&reader);
	assert_string_equal(reader.error, "ACTMEM_QUIET is 'yes', but must be 1 or 0");
	setenv("ACTMEM_QUIET", "0", 1);
	setenv("ACTMEM_JAX_GENERATIONS", "-1", 1);
	reader = READER(ACTMEM_NAMES_VARIABLES);
	reader_check_values(&reader);
	assert_string_equal(reader.error,
			    "ACTMEM_JAX_GENERATIONS is '-1', but must be a number of passes");
	unsetenv("ACTMEM_JAX_GENERATIONS");
	/* As after clearenv(), but cmocka needs its own variable again. */
	environ = NULL;
	is_set = knob_is_set(KNOB_QUIET) || knob_is_on(KNOB_QUIET);
	environ = saved;
	assert_false(is_set);
}

/* Each row has what its kind needs, and a default that it allows itself. */
static void test_table(void **state)
{
	char variable[64], choice[KNOB_CHOICE_MAX];
	struct reader reader;
	unsigned int knob;

	for (knob = 0; knob < KNOB_VARIABLES; knob++) {
		const struct knob_info *info = &knob_table[knob];

		assert_non_null(info->parts ? knob_choice(choice, knob) : NULL);
		if (!info->initial)
			continue;
		snprintf(variable, sizeof(variable), "%s=%s",
			 info->names[ACTMEM_NAMES_VARIABLES], info->initial);
		reader = reader_of(variable);
		reader_value(&reader, knob);
		assert_string_equal(reader.error, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_choices),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_given),
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_table),
	};

	return cmocka_run_group_tests_name("read", tests, NULL, NULL);
}
