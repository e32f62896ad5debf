/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a process publishes of what it waits for: places run out and come back, and
 * nonsense is read as nothing.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actmem_runtime.h"
#include "queue/inside.h"
#include "region/context.h"
#include "watch/published.h"
#include "watch/waits.h"
#include "faults.h"

#define MORE	3
#define LENGTH	(64ULL << 10)

static int setup(void **state)
{
	struct actmem_options options;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	assert_int_equal(actmem_open(&am, &options), 0);
	*state = am;
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(actmem_close(*state), 0);
	return 0;
}

static struct published_waits *waits_of(void **state)
{
	struct actmem *am = *state;

	return am->waits;
}

static struct published_waits seen(struct actmem *am)
{
	struct published_waits waits;

	assert_true(published_waits(am->stats.fd, &waits));
	return waits;
}

static unsigned int count(struct actmem *am)
{
	struct published_waits waits = seen(am);
	unsigned int i, told = 0;

	for (i = 0; i < WAITS_MAX; i++)
		told += waits.waits[i].kind != WAIT_NONE;
	return told;
}

static void test_one(void **state)
{
	struct published_wait *wait = wait_begin(waits_of(state), WAIT_BLOCK, 17, 4096, "block 5");
	struct published_waits waits = seen(*state);

	assert_int_equal(waits.waits[0].kind, WAIT_BLOCK);
	assert_int_equal(waits.waits[0].since, 17);
	assert_int_equal(waits.waits[0].bytes, 4096);
	assert_int_equal(waits.waits[0].thread, gettid());
	assert_string_equal(waits.waits[0].words, "block 5");
	wait_end(waits_of(state), wait);
	assert_int_equal(count(*state), 0);
	assert_true(seen(*state).last > 17);
}

/* A path may be longer than there is room for. */
static void test_long_words(void **state)
{
	char words[300];
	struct published_wait *wait;

	memset(words, 'x', sizeof(words) - 1);
	words[sizeof(words) - 1] = '\0';
	wait = wait_begin(waits_of(state), WAIT_REGION, 0, 1, words);
	assert_int_equal(strlen(seen(*state).waits[0].words), WAIT_WORDS - 1);
	wait_end(waits_of(state), wait);
}

static void test_more_than_places(void **state)
{
	struct published_wait *waits[WAITS_MAX + MORE];
	unsigned int i;

	for (i = 0; i < WAITS_MAX + MORE; i++)
		waits[i] = wait_begin(waits_of(state), WAIT_MEMORY, 0, 1, "");
	assert_int_equal(count(*state), WAITS_MAX);
	assert_int_equal(seen(*state).left_out, MORE);
	assert_null(waits[WAITS_MAX]);
	for (i = 0; i < WAITS_MAX + MORE; i++)
		wait_end(waits_of(state), waits[i]);
	assert_int_equal(count(*state), 0);
	assert_int_equal(seen(*state).left_out, 0);
}

/* A program's own, by any thread, and not in a child, whose parent's it would be. */
static void test_device(void **state)
{
	struct actmem_device_wait *wait = actmem_device_wait_begin(*state, 0, NULL);
	int status;
	pid_t child;

	assert_int_equal(seen(*state).waits[0].kind, WAIT_DEVICE);
	assert_string_equal(seen(*state).waits[0].words, "");
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		status = !!actmem_device_wait_begin(*state, 1, "GPU 0");
		actmem_device_wait_end(*state, wait);
		_exit(status);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(count(*state), 1);
	actmem_device_wait_end(*state, wait);
	assert_int_equal(count(*state), 0);
	assert_null(actmem_device_wait_begin(NULL, 0, "GPU 0"));
	actmem_device_wait_end(NULL, NULL);
}

static struct actmem *exporting;

/* Stands for a backend that allocates pages before it exports them. */
static int export_slowly(const struct backing *backing, uint64_t offset, uint64_t length, int *fd)
{
	struct published_waits waits = seen(exporting);

	assert_int_equal(waits.waits[0].kind, WAIT_REGION);
	assert_int_equal(waits.waits[0].bytes, LENGTH);
	assert_string_equal(waits.waits[0].words, "exported");
	*fd = -1;
	return 0;
}

static void test_export(void **state)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .pages = ACTMEM_PAGES_4K,
		.name = "exported",
	};
	const struct backend *backend;
	struct actmem_region *region;
	struct backend slow;
	int fd = 0;

	exporting = *state;
	assert_int_equal(actmem_region_create(*state, &options, &region), 0);
	backend = region->backend;
	slow = *backend;
	slow.export = export_slowly;
	region->backend = &slow;
	assert_int_equal(actmem_region_export(region, 0, LENGTH, &fd), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(count(*state), 0);
	region->backend = backend;
	assert_int_equal(actmem_region_close(region), 0);
}

static void test_nonsense(void **state)
{
	struct actmem *am = *state;
	struct published_waits *published = &am->stats.header->waits, waits;
	struct published_wait *wait = wait_begin(am->waits, WAIT_READ, 1, 1, "");

	wait->kind = WAIT_KINDS;
	assert_int_equal(count(am), 0);
	wait->kind = WAIT_READ;
	assert_int_equal(count(am), 1);
	wait->sequence++;		/* for ever in the midst of writing */
	assert_int_equal(count(am), 0);
	wait->sequence++;
	memset(wait->words, 'x', sizeof(wait->words));
	assert_int_equal(strlen(seen(am).waits[0].words), WAIT_WORDS - 1);
	wait_end(am->waits, wait);
	published->places = 0;		/* as a library that does not tell */
	assert_false(published_waits(am->stats.fd, &waits));
}

static struct actmem_file *open_file(struct actmem_queue *queue, const char *path)
{
	struct actmem_file *file;

	assert_int_equal(open_file_at(queue, path, ACTMEM_FILE_CREATE, LENGTH, &file), 0);
	return file;
}

/* The queue's place says that nothing is waited for any more, and keeps its words. */
static void expect_told(struct actmem_queue *queue, struct actmem_file *file,
			struct actmem_region *region, const char *path)
{
	struct actmem_completion completion;

	assert_int_equal(actmem_queue_spill(queue, file, 0, region, 0, LENGTH, NULL), 0);
	assert_int_equal(actmem_queue_wait(queue, &completion, 1, ACTMEM_WAIT_FOREVER), 1);
	assert_int_equal(completion.result, 0);
	assert_int_equal(region->am->stats.header->waits.waits[0].kind, WAIT_NONE);
	assert_string_equal(region->am->stats.header->waits.waits[0].words, path);
}

/* A queue tells the name of a file once for many requests, and never another's. */
static void test_files_of_queue(void **state)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .pages = ACTMEM_PAGES_4K,
	};
	struct actmem_region *region;
	struct actmem_queue *queue;
	struct actmem_file *files[2];
	char paths[3][64];
	unsigned int i;

	for (i = 0; i < 3; i++)
		snprintf(paths[i], sizeof(paths[i]), "build/tests/waits-%d-%u", getpid(), i);
	assert_int_equal(actmem_region_create(*state, &options, &region), 0);
	assert_int_equal(actmem_queue_create(*state, NULL, &queue), 0);
	assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
	files[0] = open_file(queue, paths[0]);
	files[1] = open_file(queue, paths[1]);
	expect_told(queue, files[0], region, paths[0]);
	expect_told(queue, files[0], region, paths[0]);
	expect_told(queue, files[1], region, paths[1]);
	expect_told(queue, files[0], region, paths[0]);
	expect_told(queue, files[1], region, paths[1]);
	/* The next may lie where this one did. */
	assert_int_equal(actmem_file_close(files[1]), 0);
	assert_null(queue->published_file);
	files[1] = open_file(queue, paths[2]);
	expect_told(queue, files[1], region, paths[2]);
	for (i = 0; i < 3; i++)
		assert_int_equal(unlink(paths[i]), 0);
	assert_int_equal(actmem_file_close(files[0]), 0);
	assert_int_equal(actmem_file_close(files[1]), 0);
	assert_int_equal(actmem_queue_detach(queue, region), 0);
	assert_int_equal(actmem_queue_destroy(queue), 0);
	assert_int_equal(actmem_region_close(region), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_more_than_places, setup, teardown),
		cmocka_unit_test_setup_teardown(test_device, setup, teardown),
		cmocka_unit_test_setup_teardown(test_files_of_queue, setup, teardown),
		cmocka_unit_test_setup_teardown(test_export, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
	};

	return cmocka_run_group_tests_name("waits", tests, NULL, NULL);
}
