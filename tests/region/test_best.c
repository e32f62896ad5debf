/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a caller leaves open is the best memory available. What the handle, a region, a heap or a
 * store sets is exact, unless the same caller allows a fallback.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actmem_store.h"
#include "machine/machine.h"
#include "region/context.h"
#include "faults.h"

#define KEY	((struct actmem_key){ .name = 1 })

/* Short names for the tables. */
#define OPEN		ACTMEM_PAGES_DEFAULT
#define P4K		ACTMEM_PAGES_4K
#define P2M		ACTMEM_PAGES_2M
#define P1G		ACTMEM_PAGES_1G
#define LAZY		ACTMEM_REGION_LAZY
#define NEAR		(ACTMEM_REGION_NEAR | LAZY)
#define ANY		(ACTMEM_ALLOW_2M | ACTMEM_ALLOW_THP | ACTMEM_ALLOW_4K | \
			 ACTMEM_ALLOW_NODE | ACTMEM_ALLOW_UNLOCKED)
#define ONLY		ACTMEM_ALLOW_ONLY
#define ALLOW(x)	ACTMEM_ALLOW_ ## x
#define NODE_0		1

enum missing { PAGES, NODE, LOCK };

/* Options of a caller: pages, a mask of nodes, and the fallbacks that it allows. */
struct said {
	enum actmem_pages pages;
	uint64_t nodes;
	uint32_t allow;
};

struct row {
	enum missing missing;		/* the memory that is not available */
	struct said handle, region;
	uint32_t flags;			/* of the region */
	bool strict;			/* ACTMEM_STRICT=1 */
	bool falls_back;		/* or it is an error */
};

static const struct row rows[] = {
	/* Both leave the pages open. */
	{ PAGES, { OPEN, 0, 0 }, { OPEN, 0, 0 }, LAZY, false, true },
	{ PAGES, { OPEN, 0, 0 }, { OPEN, 0, 0 }, LAZY, true, false },
	{ PAGES, { OPEN, NODE_0, 0 }, { OPEN, 0, 0 }, LAZY, false, true },
	{ PAGES, { OPEN, 0, 0 }, { OPEN, NODE_0, 0 }, LAZY, false, true },
	{ PAGES, { OPEN, 0, ONLY }, { OPEN, 0, 0 }, LAZY, false, false },
	{ PAGES, { OPEN, 0, 0 }, { OPEN, 0, ONLY }, LAZY, false, false },
	{ PAGES, { OPEN, 0, ANY }, { OPEN, 0, ONLY }, LAZY, false, false },
	{ PAGES, { OPEN, 0, ANY }, { OPEN, 0, ONLY | ALLOW(NODE) }, LAZY, false, false },
	{ PAGES, { OPEN, 0, ONLY | ALLOW(4K) }, { OPEN, 0, 0 }, LAZY, false, true },
	{ PAGES, { OPEN, 0, 0 }, { OPEN, 0, ONLY | ALLOW(4K) }, LAZY, false, true },
	{ PAGES, { OPEN, 0, ANY }, { OPEN, 0, 0 }, LAZY, true, true },
	{ PAGES, { OPEN, 0, 0 }, { OPEN, 0, ALLOW(4K) }, LAZY, true, true },
	{ PAGES, { OPEN, 0, ONLY }, { OPEN, 0, ALLOW(4K) }, LAZY, false, true },
	/* Those that allow something allow nothing else. */
	{ PAGES, { OPEN, 0, ALLOW(UNLOCKED) }, { OPEN, 0, 0 }, LAZY, false, false },
	{ PAGES, { OPEN, 0, 0 }, { OPEN, 0, ALLOW(UNLOCKED) }, LAZY, false, false },
	{ PAGES, { OPEN, 0, ALLOW(UNLOCKED) }, { OPEN, 0, ALLOW(4K) }, LAZY, false, true },
	/* The handle sets them. */
	{ PAGES, { P2M, 0, 0 }, { OPEN, 0, 0 }, LAZY, false, false },
	{ PAGES, { P1G, 0, 0 }, { OPEN, 0, 0 }, LAZY, false, false },
	{ PAGES, { P2M, 0, ANY }, { OPEN, 0, 0 }, LAZY, false, true },
	{ PAGES, { P1G, 0, ALLOW(2M) }, { OPEN, 0, 0 }, LAZY, false, false },
	{ PAGES, { P1G, 0, ANY }, { OPEN, 0, 0 }, LAZY, false, true },
	{ PAGES, { P2M, 0, 0 }, { OPEN, 0, ALLOW(4K) }, LAZY, false, true },
	/* The region sets them: the handle's permission does not count. */
	{ PAGES, { OPEN, 0, 0 }, { P2M, 0, 0 }, LAZY, false, false },
	{ PAGES, { OPEN, 0, 0 }, { P1G, 0, 0 }, LAZY, false, false },
	{ PAGES, { OPEN, 0, 0 }, { P1G, 0, 0 }, NEAR, false, false },
	{ PAGES, { OPEN, 0, ANY }, { P2M, 0, 0 }, LAZY, false, false },
	{ PAGES, { OPEN, 0, ANY }, { P1G, 0, 0 }, LAZY, false, false },
	{ PAGES, { P2M, 0, ANY }, { P1G, 0, 0 }, LAZY, false, false },
	{ PAGES, { P4K, 0, 0 }, { P2M, 0, 0 }, LAZY, false, false },
	{ PAGES, { OPEN, 0, 0 }, { P2M, 0, ANY }, LAZY, false, true },
	{ PAGES, { P2M, 0, 0 }, { P1G, 0, ANY }, LAZY, true, true },

	/* Nodes that someone set. */
	{ NODE, { P2M, NODE_0, 0 }, { OPEN, 0, 0 }, LAZY, false, false },
	{ NODE, { P2M, NODE_0, ALLOW(NODE) }, { OPEN, 0, 0 }, LAZY, false, true },
	{ NODE, { P2M, NODE_0, 0 }, { OPEN, 0, ALLOW(NODE) }, LAZY, false, true },
	{ NODE, { P2M, 0, 0 }, { OPEN, NODE_0, 0 }, LAZY, false, false },
	{ NODE, { P2M, 0, ALLOW(NODE) }, { OPEN, NODE_0, 0 }, LAZY, false, false },
	{ NODE, { P2M, NODE_0, ALLOW(NODE) }, { OPEN, NODE_0, 0 }, LAZY, false, false },
	{ NODE, { P2M, 0, 0 }, { OPEN, NODE_0, ALLOW(NODE) }, LAZY, true, true },
	/* Nodes that the region only wishes. */
	{ NODE, { P2M, 0, 0 }, { OPEN, NODE_0, 0 }, NEAR, false, true },
	{ NODE, { P2M, 0, 0 }, { OPEN, NODE_0, 0 }, NEAR, true, false },
	{ NODE, { P2M, 0, ONLY }, { OPEN, NODE_0, 0 }, NEAR, false, false },
	{ NODE, { P2M, 0, ALLOW(NODE) }, { OPEN, NODE_0, 0 }, NEAR, true, true },
	{ NODE, { P2M, NODE_0, 0 }, { OPEN, NODE_0, 0 }, NEAR, false, false },

	/* Locked memory is what all leave open who allow nothing in particular. */
	{ LOCK, { P4K, 0, 0 }, { OPEN, 0, 0 }, LAZY, false, true },
	{ LOCK, { OPEN, 0, 0 }, { P4K, 0, 0 }, LAZY, false, true },
	{ LOCK, { P4K, NODE_0, 0 }, { OPEN, 0, 0 }, LAZY, false, true },
	{ LOCK, { P4K, 0, 0 }, { OPEN, 0, 0 }, LAZY, true, false },
	{ LOCK, { P4K, 0, ONLY }, { OPEN, 0, 0 }, LAZY, false, false },
	{ LOCK, { P4K, 0, ALLOW(NODE) }, { OPEN, 0, 0 }, LAZY, false, false },
	{ LOCK, { P4K, 0, 0 }, { OPEN, 0, ALLOW(NODE) }, LAZY, false, false },
	{ LOCK, { P4K, 0, 0 }, { OPEN, 0, ONLY }, LAZY, false, false },
	{ LOCK, { P4K, 0, ALLOW(UNLOCKED) }, { OPEN, 0, ONLY }, LAZY, false, false },
	{ LOCK, { P4K, 0, ALLOW(UNLOCKED) }, { P4K, 0, 0 }, LAZY, true, true },
	{ LOCK, { P4K, 0, 0 }, { OPEN, 0, ALLOW(UNLOCKED) }, LAZY, true, true },
};

#define ROWS	(sizeof(rows) / sizeof(rows[0]))

static int open_as(const struct row *row, struct actmem **am)
{
	struct actmem_options options = {
		.size = sizeof(options), .backend = ACTMEM_BACKEND_MEMFD,
		.pages = row->handle.pages, .nodes.word[0] = row->handle.nodes,
		.allow = row->handle.allow,
	};

	setenv("ACTMEM_STRICT", row->strict ? "1" : "0", 1);
	return actmem_open(am, &options);
}

static struct actmem_region_options options_of(const struct row *row)
{
	return (struct actmem_region_options){
		.size = sizeof(struct actmem_region_options), .pages = row->region.pages,
		.nodes.word[0] = row->region.nodes, .allow = row->region.allow,
		.flags = row->flags,
	};
}

static enum actmem_pages wanted_pages(const struct row *row)
{
	return row->region.pages ? row->region.pages : row->handle.pages ? row->handle.pages : P2M;
}

/* Each makes a region of one page, calls check_region(), and closes the region. */
static void check_region(struct actmem *am, const struct row *row, bool is_there);

static int make_region(struct actmem *am, const struct row *row, bool is_there)
{
	struct actmem_region_options options = options_of(row);
	struct actmem_region *region;
	int error;

	options.length = wanted_pages(row) == P1G ? GIANT_PAGE_BYTES : HUGE_PAGE_BYTES;
	error = actmem_region_create(am, &options, &region);
	if (error)
		return error;
	check_region(am, row, is_there);
	return actmem_region_close(region);
}

static int make_heap(struct actmem *am, const struct row *row, bool is_there)
{
	struct actmem_region_options region = options_of(row);
	struct actmem_heap_options options = {
		.size = sizeof(options), .grow_bytes = HUGE_PAGE_BYTES, .region = &region,
	};
	struct actmem_heap *heap;
	void *block;
	int error;

	assert_int_equal(actmem_heap_create(am, &options, &heap), 0);
	error = actmem_heap_alloc(heap, 1, 0, &block);
	if (!error) {
		check_region(am, row, is_there);
		error = actmem_heap_free(heap, block);
	}
	assert_int_equal(actmem_heap_destroy(heap), 0);
	return error;
}

static int make_store(struct actmem *am, const struct row *row, bool is_there)
{
	struct actmem_region_options region = options_of(row);
	struct actmem_store_options options = {
		.size = sizeof(options), .grow_bytes = HUGE_PAGE_BYTES, .region = &region,
	};
	struct actmem_store *store;
	void *memory;
	int error;

	assert_int_equal(actmem_store_create(am, &options, &store), 0);
	error = actmem_store_reserve(store, KEY, 1, &memory, ACTMEM_WAIT_FOREVER);
	if (!error) {
		check_region(am, row, is_there);
		error = actmem_store_commit(store, KEY);
	}
	assert_int_equal(actmem_store_destroy(store), 0);
	return error;
}

static void check_region(struct actmem *am, const struct row *row, bool is_there)
{
	const struct backing *backing = &am->regions->backing;
	bool falls_back = row->falls_back && !is_there;

	assert_int_equal(backing->fallbacks, falls_back);
	assert_int_equal(backing->pages != wanted_pages(row), falls_back && row->missing == PAGES);
	assert_int_equal(backing->elsewhere, falls_back && row->missing == NODE);
	assert_int_equal(!backing->locked_bytes, falls_back && row->missing == LOCK);
}

static void withhold(enum missing missing)
{
	fake_hugetlb(missing == PAGES ? HUGETLB_NONE : HUGETLB_PLENTY);
	if (missing == NODE)
		fail_call("mmap", 1, ENOMEM);
	if (missing == LOCK)
		fail_every("mlock2", ENOMEM);
}

/* The words of the error: the object, and the knob that helps. */
static const char *const refusals[][2] = {
	[PAGES] = { "GiB hugetlb pages", "ACTMEM_ALLOW_" },
	[NODE] = { "node 0 has", "2.0 MiB are needed" },
	[LOCK] = { "RLIMIT_MEMLOCK", "ACTMEM_ALLOW_UNLOCKED" },
};

static void assert_refused(const struct row *row)
{
	const char *object = refusals[row->missing][0];

	if (row->missing == PAGES && wanted_pages(row) != P1G && row->handle.pages != P1G)
		object = "2 MiB hugetlb pages";
	assert_non_null(strstr(actmem_error(), object));
	assert_non_null(strstr(actmem_error(), refusals[row->missing][1]));
}

static void test_rule(void **state)
{
	static int (*const make[])(struct actmem *am, const struct row *row, bool is_there) = {
		make_region, make_heap, make_store,
	};
	struct holdings before = held_now();
	struct actmem *am;
	unsigned int i, by;
	int error;

	for (i = 0; i < 3 * ROWS; i++) {
		const struct row *row = &rows[i / 3];

		by = i % 3;
		print_message("# row %zu, made by %u\n", row - rows, by);
		assert_int_equal(open_as(row, &am), 0);
		fake_hugetlb(HUGETLB_PLENTY);
		assert_int_equal(make[by](am, row, true), 0);
		withhold(row->missing);
		error = make[by](am, row, false);
		fail_nothing();
		assert_int_equal(!error, row->falls_back);
		if (error)
			assert_refused(row);
		assert_int_equal(am->counters->fallbacks_total, row->falls_back);
		assert_int_equal(actmem_close(am), 0);
		assert_same_held(before);
	}
}

/* A region that is received or opened by name is locked like one that is created. */
static void test_received(void **state)
{
	static const struct row open = { LOCK, { P4K, 0, 0 }, { OPEN, 0, 0 }, LAZY, false, true };
	static const struct row strict = { LOCK, { P4K, 0, 0 }, { OPEN, 0, 0 }, LAZY, true, false };
	struct actmem_region *region, *received;
	struct actmem *am, *second;

	assert_int_equal(open_as(&open, &am), 0);
	assert_int_equal(open_as(&strict, &second), 0);
	assert_int_equal(create_region(am, HUGE_PAGE_BYTES, LAZY, &region), 0);
	fail_every("mlock2", ENOMEM);
	assert_fails(actmem_region_from_fd(second, actmem_region_fd(region), &received), ENOMEM,
		     "RLIMIT_MEMLOCK");
	assert_int_equal(actmem_region_from_fd(am, actmem_region_fd(region), &received), 0);
	fail_nothing();
	assert_int_equal(am->counters->fallbacks_total, 1);
	assert_int_equal(actmem_region_close(received), 0);
	assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(actmem_close(second), 0);
	assert_int_equal(actmem_close(am), 0);
}

/* Files of tmpfs have 4K pages: by default that is as good as it gets. */
static void test_named(void **state)
{
	static const struct row open = { PAGES, { OPEN, 0, 0 }, { OPEN, 0, 0 }, LAZY, false, true };
	struct actmem_region_options options = options_of(&open);
	struct actmem_region *region;
	struct actmem *am;
	char path[64];

	snprintf(path, sizeof(path), NAMES_PREFIX "-best-%d", getpid());
	assert_int_equal(open_as(&open, &am), 0);
	options.length = HUGE_PAGE_BYTES;
	options.pages = ACTMEM_PAGES_2M;
	assert_fails(actmem_region_open(am, path, &options, ACTMEM_OPEN_CREATE, &region),
		     EOPNOTSUPP, "ACTMEM_ALLOW_THP");
	options.pages = ACTMEM_PAGES_DEFAULT;
	assert_int_equal(actmem_region_open(am, path, &options, ACTMEM_OPEN_CREATE, &region), 0);
	assert_true(am->counters->fallbacks_total > 0);
	assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(actmem_region_open(am, path, &options, 0, &region), 0);
	assert_int_equal(actmem_region_close(region), 0);
	options.pages = ACTMEM_PAGES_2M;
	assert_fails(actmem_region_open(am, path, &options, 0, &region), EEXIST, "ACTMEM_ALLOW_");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(actmem_close(am), 0);
}

/* The backend that a caller names is no other. */
static void test_backend(void **state)
{
	struct actmem_options options = { .size = sizeof(options) };
	struct actmem *am;

	unsetenv("ACTMEM_STRICT");
	fail_call("open", 1, ENOENT);
	assert_int_equal(actmem_open(&am, &options), 0);
	assert_int_equal(actmem_get_backend(am), ACTMEM_BACKEND_MEMFD);
	assert_int_equal(actmem_close(am), 0);
	options.backend = ACTMEM_BACKEND_DRIVER;
	fail_call("open", 1, ENOENT);
	assert_fails(actmem_open(&am, &options), ENOENT, "/dev/actmem");
	fail_nothing();
}

static void test_strict_is_read(void **state)
{
	static const char *const variables[] = { "ACTMEM_STRICT=1", NULL };
	static const char *const both[] = { "ACTMEM_STRICT=1", "ACTMEM_ALLOW=thp", NULL };
	struct actmem_options options = { .size = sizeof(options) };
	struct actmem *am;

	assert_int_equal(actmem_options_from_variables(variables, &options), 0);
	assert_int_equal(options.allow, ONLY);
	assert_int_equal(actmem_options_from_variables(both, &options), 0);
	assert_int_equal(options.allow, ONLY | ACTMEM_ALLOW_THP);
	setenv("ACTMEM_STRICT", "yes", 1);
	assert_fails(actmem_options_from_environment(&options), EINVAL,
		     "ACTMEM_STRICT is 'yes', but must be 1 or 0");
	assert_fails(actmem_open(&am, &options), EINVAL,
		     "ACTMEM_STRICT is 'yes', but must be 1 or 0");
	unsetenv("ACTMEM_STRICT");
}

/* Makes two regions of missing memory. Returns what that prints on stderr. */
static const char *printed(const struct row *row, const char *variable)
{
	static char text[4096];
	struct actmem *am;
	ssize_t length;
	int ends[2], status;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (!child) {
		dup2(ends[1], STDERR_FILENO);
		if (variable)
			setenv(variable, "1", 1);
		status = open_as(row, &am);
		withhold(row->missing);
		if (!status)
			status = make_region(am, row, false);
		withhold(row->missing);
		if (!status)
			status = make_heap(am, row, false);
		_exit(status ? 1 : 0);
	}
	close(ends[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	length = read(ends[0], text, sizeof(text) - 1);
	assert_true(length >= 0);
	text[length] = '\0';
	close(ends[0]);
	return text;
}

static void test_report(void **state)
{
	static const struct row pages = {
		PAGES, { OPEN, 0, 0 }, { OPEN, 0, 0 }, LAZY, false, true
	};
	static const struct row lock = {
		LOCK, { P4K, 0, 0 }, { OPEN, 0, 0 }, LAZY, false, true
	};
	static const struct row node = {
		NODE, { P2M, 0, 0 }, { OPEN, NODE_0, 0 }, NEAR, false, true
	};
	static const struct row allowed = {
		PAGES, { OPEN, 0, ANY }, { OPEN, 0, 0 }, LAZY, false, true
	};
	static const struct row own = {
		PAGES, { P2M, 0, 0 }, { OPEN, 0, ANY }, LAZY, false, true
	};
	const char *text;

	assert_string_equal(printed(&lock, NULL), "actmem: memory is 4K pages of memfd, not locked; 'actmem doctor' reports how to get better memory, docs/installing.md says how to install the command and the driver, ACTMEM_STRICT=1 makes this an error, ACTMEM_QUIET=1 omits this line\n");
	text = printed(&pages, NULL);
	assert_true(!strncmp(text, "actmem: memory is 4K pages of memfd; ", 37) ||
		    !strncmp(text, "actmem: memory is thp pages of memfd; ", 38));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	assert_non_null(strstr(printed(&node, NULL),
			       "memory is 2M pages of memfd, on other nodes than requested; "));
	assert_string_equal(printed(&pages, "ACTMEM_QUIET"), "");
	assert_string_equal(printed(&pages, "ACTMEM_REPORTED"), "");
	assert_string_equal(printed(&allowed, NULL), "");
	assert_string_equal(printed(&own, NULL), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: a process prints its line once. */
		cmocka_unit_test(test_report),
		cmocka_unit_test(test_rule),
		cmocka_unit_test(test_received),
		cmocka_unit_test(test_named),
		cmocka_unit_test(test_backend),
		cmocka_unit_test(test_strict_is_read),
	};

	return cmocka_run_group_tests_name("best", tests, NULL, NULL);
}
