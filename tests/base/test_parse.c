/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Text in and out: node sets, bytes, sizes, the environment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actmem.h"
#include "base/error.h"
#include "base/size.h"
#include "base/structs.h"
#include "machine/node.h"
#include "faults.h"

static void test_nodes_parse(void **state)
{
	static const char *const bad[] = {
		",", "0,", ",0", "0,,1", "-1", "1-", "3-1", "1024", "0-1024", "0x1", " 0", "0 ",
		"4294967296", "18446744073709551616", "0\n\n", "a", "0-1-2",
	};
	struct actmem_nodes nodes;
	unsigned int i;

	assert_true(nodes_parse("0,2-3\n", &nodes));
	assert_int_equal(nodes.word[0], 0xd);
	assert_int_equal(nodes_count(&nodes), 3);
	assert_true(nodes_parse("0-1023", &nodes));
	assert_int_equal(nodes_count(&nodes), 1024);
	assert_true(nodes_parse("63-64,1023", &nodes));
	assert_int_equal(nodes.word[0], 1ULL << 63);
	assert_int_equal(nodes.word[1], 1);
	assert_int_equal(nodes.word[15], 1ULL << 63);
	assert_true(nodes_parse("", &nodes));
	assert_true(nodes_empty(&nodes));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (nodes_parse(bad[i], &nodes))
			fail_msg("'%s' was taken", bad[i]);
}

static void test_nodes_next(void **state)
{
	struct actmem_nodes nodes;

	assert_true(nodes_parse("5,64,1023", &nodes));
	assert_int_equal(nodes_next(&nodes, 0), 5);
	assert_int_equal(nodes_next(&nodes, 6), 64);
	assert_int_equal(nodes_next(&nodes, 64), 64);
	assert_int_equal(nodes_next(&nodes, 65), 1023);
	assert_int_equal(nodes_next(&nodes, 1024), ACTMEM_NODES_MAX);
}

static void assert_text(const char *set, const char *wanted)
{
	struct actmem_nodes nodes;

	assert_true(nodes_parse(set, &nodes));
	assert_string_equal(NODES_TEXT(&nodes), wanted);
}

static void test_nodes_text(void **state)
{
	struct actmem_nodes nodes = { { 0 } };
	unsigned int node;

	assert_text("", "no node");
	assert_text("7", "node 7");
	assert_text("0,1", "nodes 0-1");
	assert_text("0,2,3,4,9", "nodes 0,2-4,9");
	assert_text("1022-1023", "nodes 1022-1023");
	assert_text("0-1023", "nodes 0-1023");
	for (node = 0; node < ACTMEM_NODES_MAX; node += 2)
		node_set(&nodes, node);
	assert_non_null(strstr(NODES_TEXT(&nodes), "..."));
	assert_true(strlen(NODES_TEXT(&nodes)) < NODES_TEXT_MAX);
}

static void test_bytes_text(void **state)
{
	assert_string_equal(BYTES_TEXT(0), "0 B");
	assert_string_equal(BYTES_TEXT(1023), "1023 B");
	assert_string_equal(BYTES_TEXT(1024), "1.0 KiB");
	assert_string_equal(BYTES_TEXT((31ULL << 30) / 10), "3.1 GiB");
	assert_string_equal(BYTES_TEXT(UINT64_MAX), "16.0 EiB");
}

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "64k", 64ULL << 10 },
		{ "5M", 5ULL << 20 },
		{ "3g", 3ULL << 30 },
		{ "2T", 2ULL << 40 },
		{ "16777215T", 16777215ULL << 40 },
		{ "18446744073709551615", UINT64_MAX },
	};
	static const char *const bad[] = {
		"", " 1", "-1", "+1", "K", "1KK", "1KB", "1 K", "1P", "0x10", "1.5G",
		"16777216T", "18446744073709551616",
	};
	uint64_t bytes;
	unsigned int i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(size_from_text(good[i].text, &bytes));
		assert_int_equal(bytes, good[i].bytes);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		bytes = 77;
		if (size_from_text(bad[i], &bytes))
			fail_msg("'%s' is taken", bad[i]);
		assert_int_equal(bytes, 77);
	}
}

static void test_words(void **state)
{
	char text[3 * ERROR_TEXT_MAX];
	unsigned int i;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal((fail)(EINVAL, "%s", text), -EINVAL);
	assert_int_equal(strlen(actmem_error()), ERROR_TEXT_MAX - 1);
	fail_more("%s", text);
	assert_int_equal(strlen(actmem_error()), ERROR_TEXT_MAX - 1);
	/* Words that quote themselves. */
	(fail)(EINVAL, "one");
	for (i = 0; i < 3; i++)
		(fail)(EINVAL, "%s, two", actmem_error());
	assert_string_equal(actmem_error(), "one, two, two, two");
	assert_int_equal(fail_as_before(-EBUSY, "three"), -EBUSY);
	assert_string_equal(actmem_error(), "three");
}

/* A caller of a newer library may set no field that this one does not know. */
static void test_structs(void **state)
{
	struct { size_t size; uint64_t known; } taken;
	struct { size_t size; uint64_t known, unknown; } given = { sizeof(given), 7, 0 };

	assert_int_equal(take_struct(&taken, sizeof(taken), &given, "options"), 0);
	assert_int_equal(taken.known, 7);
	given.unknown = 1;
	assert_fails(take_struct(&taken, sizeof(taken), &given, "options"), EINVAL,
		     "options: byte 16 is set, which this library");
	given.unknown = 1ULL << 63;
	assert_fails(take_struct(&taken, sizeof(taken), &given, "options"), EINVAL, "byte 23 is set");
}

static void test_environment(void **state)
{
	static const char *const variables[] = {
		"ACTMEM_PAGESX=4K", "ACTMEM_PAGES=thp", "ACTMEM_NAME=/mnt/a/job", NULL
	};
	struct actmem_options options = { .size = sizeof(options) };

	setenv("ACTMEM_BACKEND", "memfd", 1);
	setenv("ACTMEM_PAGES", "4K", 1);
	setenv("ACTMEM_POLICY", "interleave", 1);
	setenv("ACTMEM_NODES", "0,2-3", 1);
	setenv("ACTMEM_ALLOW", "thp,unlocked", 1);
	assert_int_equal(actmem_options_from_environment(&options), 0);
	assert_int_equal(options.backend, ACTMEM_BACKEND_MEMFD);
	assert_int_equal(options.pages, ACTMEM_PAGES_4K);
	assert_int_equal(options.policy, ACTMEM_PLACE_INTERLEAVE);
	assert_int_equal(options.nodes.word[0], 0xd);
	assert_int_equal(options.allow, ACTMEM_ALLOW_THP | ACTMEM_ALLOW_UNLOCKED);
	assert_int_equal(options.size, sizeof(options));
	assert_int_equal(actmem_options_from_variables(variables, &options), 0);
	assert_int_equal(options.pages, ACTMEM_PAGES_THP);
	assert_int_equal(options.backend, ACTMEM_BACKEND_AUTO);
	assert_int_equal(options.allow, 0);
	assert_string_equal(options.heap_name, "/mnt/a/job");
	assert_fails(actmem_options_from_variables(NULL, &options), EINVAL, "variables is NULL");
	setenv("ACTMEM_NODES", "none", 1);
	assert_fails(actmem_options_from_environment(&options), EINVAL, "ACTMEM_NODES is 'none'");
	options.size = 0;
	unsetenv("ACTMEM_NODES");
	assert_fails(actmem_options_from_environment(&options), EINVAL, "ACTMEM_INIT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nodes_parse),
		cmocka_unit_test(test_nodes_next),
		cmocka_unit_test(test_nodes_text),
		cmocka_unit_test(test_bytes_text),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_structs),
		cmocka_unit_test(test_environment),
	};

	return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
