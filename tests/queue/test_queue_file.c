/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Sets of files: how long they are, and what is left of one that could not be opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "faults.h"

#define FILES		3
#define KIB		1024ULL
#define BLOCK		(64 * KIB)

static struct actmem *am;
static struct actmem_queue *queue;
static char names[FILES][64];
static const char *paths[FILES];

static int open_queue(void **state)
{
	struct actmem_queue_options queue_options;
	unsigned int i;

	for (i = 0; i < FILES; i++) {
		snprintf(names[i], sizeof(names[i]), "build/tests/file-%d.%u", getpid(), i);
		paths[i] = names[i];
	}
	ACTMEM_INIT(&queue_options);
	queue_options.engine = ACTMEM_ENGINE_WORKERS;
	queue_options.block_bytes = BLOCK;
	return open_small(&am) || actmem_queue_create(am, &queue_options, &queue);
}

static int close_queue(void **state)
{
	fail_nothing();
	return actmem_queue_destroy(queue) || actmem_close(am);
}

static int open_set_of(struct actmem_queue *of, uint32_t flags, uint64_t stripe_bytes,
		       uint64_t length, struct actmem_file **file)
{
	struct actmem_file_options options = {
		.size = sizeof(options), .paths = paths, .path_count = FILES,
		.flags = flags | ACTMEM_FILE_ALLOW_BUFFERED, .stripe_bytes = stripe_bytes,
		.length = length,
	};

	return actmem_file_open(of, &options, file);
}

static int open_set(uint32_t flags, uint64_t stripe_bytes, uint64_t length,
		    struct actmem_file **file)
{
	return open_set_of(queue, flags, stripe_bytes, length, file);
}

static uint64_t length_of(struct actmem_file *file)
{
	struct actmem_file_info info = { .size = sizeof(info) };

	assert_int_equal(actmem_file_get_info(file, &info), 0);
	return info.length;
}

static uint64_t bytes_of(const char *path)
{
	struct stat stat;

	assert_int_equal(lstat(path, &stat), 0);
	return (uint64_t)stat.st_size;
}

static void remove_files(void)
{
	unsigned int i;

	for (i = 0; i < FILES; i++)
		assert_int_equal(unlink(paths[i]), 0);
}

static void close_set(struct actmem_file *file)
{
	assert_int_equal(actmem_file_close(file), 0);
	remove_files();
}

static void assert_none_there(void)
{
	unsigned int i;

	for (i = 0; i < FILES; i++)
		assert_int_equal(access(paths[i], F_OK), -1);
}

/* 2 and a half stripes: a whole one in the first two files, a half in the third. */
static void test_shares(void **state)
{
	struct actmem_file *file;

	assert_int_equal(open_set(ACTMEM_FILE_CREATE, BLOCK, 2 * BLOCK + BLOCK / 2, &file), 0);
	assert_int_equal(bytes_of(paths[0]), BLOCK);
	assert_int_equal(bytes_of(paths[1]), BLOCK);
	assert_int_equal(bytes_of(paths[2]), BLOCK / 2);
	assert_int_equal(length_of(file), 2 * BLOCK + BLOCK / 2);
	assert_int_equal(truncate(paths[1], BLOCK / 4), 0);
	assert_int_equal(length_of(file), BLOCK + BLOCK / 4);
	assert_int_equal(truncate(paths[0], 0), 0);
	assert_int_equal(length_of(file), 0);
	close_set(file);
}

/* The other files begin where no offset is. */
static void test_long_stripes(void **state)
{
	struct actmem_file *file;

	assert_int_equal(open_set(ACTMEM_FILE_CREATE, 1ULL << 63, BLOCK, &file), 0);
	assert_int_equal(bytes_of(paths[0]), BLOCK);
	assert_int_equal(bytes_of(paths[1]), 0);
	assert_int_equal(length_of(file), BLOCK);
	close_set(file);
}

/* It would end the process by a signal. */
static void test_size_limit(void **state)
{
	struct rlimit before, limit;
	struct actmem_file *file;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = BLOCK - 1;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_fails(open_set(ACTMEM_FILE_CREATE, BLOCK, 3 * BLOCK, &file), EFBIG, "ulimit -f");
	assert_none_there();
	limit.rlim_cur = BLOCK;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(open_set(ACTMEM_FILE_CREATE, BLOCK, 3 * BLOCK, &file), 0);
	close_set(file);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* What there is no space for is not tried: it would fill the disk before it fails. */
static void test_no_room(void **state)
{
	struct actmem_file *file;
	struct statvfs disk;
	uint64_t length;

	assert_int_equal(statvfs("build", &disk), 0);
	length = ((uint64_t)disk.f_bavail * disk.f_frsize / BLOCK + 16) * BLOCK;
	fail_every("fallocate", EIO);
	assert_fails(open_set(ACTMEM_FILE_CREATE, BLOCK, FILES * length, &file), ENOSPC,
		     "no space for");
	assert_none_there();
}

/* Whichever call fails, no descriptor and no file is left. */
static void test_sweep(void **state)
{
	struct holdings before = held_now();
	struct actmem_file *file;
	unsigned int nth, failures = 0;
	bool was_reached = true;
	int error;

	for (nth = 1; was_reached; nth++) {
		file = NULL;
		fail_nth(nth);
		error = open_set(ACTMEM_FILE_CREATE, BLOCK, 3 * BLOCK, &file);
		was_reached = fail_nth_was_reached();
		failures += !!error;
		if (!error) {
			assert_int_equal(length_of(file), 3 * BLOCK);
			close_set(file);
		}
		assert_none_there();
		assert_same_held(before);
	}
	/* A path and an open for each, at least. */
	assert_true(failures > 2 * FILES);
}

/* What a ring's table of files had before one failed is taken out again. */
static void test_slots(void **state)
{
	struct actmem_queue_options options = { .size = sizeof(options) };
	struct actmem_queue *ring;
	struct actmem_file *file;
	unsigned int i;

	assert_int_equal(actmem_queue_create(am, &options, &ring), 0);
	for (i = 0; i < 130 && !strncmp(actmem_queue_describe(ring), "io_uring", 8); i++) {
		fail_call("register_file", FILES, ENFILE);
		assert_fails(open_set_of(ring, ACTMEM_FILE_CREATE, BLOCK, 0, &file), ENFILE,
			     "cannot register");
		assert_none_there();
	}
	fail_nothing();
	assert_int_equal(open_set_of(ring, ACTMEM_FILE_CREATE, BLOCK, 0, &file), 0);
	close_set(file);
	assert_int_equal(actmem_queue_destroy(ring), 0);
}

/* One without direct I/O has all of them go through the page cache. */
static void test_partly_buffered(void **state)
{
	struct actmem_file_info info = { .size = sizeof(info) };
	struct actmem_file *file;
	int descriptor;

	fail_call("fcntl", 2, EINVAL);
	assert_int_equal(open_set(ACTMEM_FILE_CREATE, BLOCK, 0, &file), 0);
	assert_int_equal(actmem_file_get_info(file, &info), 0);
	assert_int_equal(info.direct, 0);
	assert_int_equal(info.alignment, 1);
	for (descriptor = 0; descriptor < 64; descriptor++)
		assert_false(fcntl(descriptor, F_GETFL) != -1 &&
			     fcntl(descriptor, F_GETFL) & O_DIRECT);
	close_set(file);
	fail_call("fcntl", 2, EIO);
	assert_fails(open_set(ACTMEM_FILE_CREATE, BLOCK, 0, &file), EIO, "has no direct I/O");
	assert_none_there();
}

static unsigned int count_without_atime(void)
{
	unsigned int count = 0;
	int descriptor, flags;

	for (descriptor = 0; descriptor < 64; descriptor++) {
		flags = fcntl(descriptor, F_GETFL);
		if (flags != -1 && flags & O_NOATIME)
			count++;
	}
	return count;
}

static void test_no_atime(void **state)
{
	struct actmem_file *file;

	assert_int_equal(open_set(ACTMEM_FILE_CREATE, BLOCK, 0, &file), 0);
	assert_int_equal(count_without_atime(), 0);
	assert_int_equal(actmem_file_close(file), 0);
	assert_int_equal(open_set(ACTMEM_FILE_NO_ATIME, BLOCK, 0, &file), 0);
	assert_int_equal(count_without_atime(), FILES);
	assert_int_equal(actmem_file_close(file), 0);
	fail_call("open", 2, EPERM);
	assert_fails(open_set(ACTMEM_FILE_NO_ATIME, BLOCK, 0, &file), EPERM,
		     "because another user owns the file");
	remove_files();
}

/* Those without a name are nobody else's business. */
static void test_temporary_no_atime(void **state)
{
	static const char directory[] = "build/tests";
	struct actmem_file *file;
	unsigned int i;

	for (i = 0; i < FILES; i++)
		paths[i] = directory;
	assert_int_equal(open_set(ACTMEM_FILE_TEMPORARY, BLOCK, 0, &file), 0);
	assert_int_equal(count_without_atime(), FILES);
	assert_int_equal(actmem_file_close(file), 0);
	fail_call("open", 2, EPERM);
	assert_int_equal(open_set(ACTMEM_FILE_TEMPORARY, BLOCK, 0, &file), 0);
	assert_int_equal(count_without_atime(), FILES - 1);
	assert_int_equal(actmem_file_close(file), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_shares, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_long_stripes, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_size_limit, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_no_room, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_sweep, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_slots, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_partly_buffered, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_no_atime, open_queue, close_queue),
		cmocka_unit_test_setup_teardown(test_temporary_no_atime, open_queue, close_queue),
	};

	return cmocka_run_group_tests_name("queue_file", tests, NULL, NULL);
}
