/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The list against processes that publish nonsense: what is wrong is left out,
 * what is true stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actmem.h"
#include "watch/stats.h"
#include "faults.h"

#define LENGTH	(1ULL << 20)
#define SEALS	(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

/* A process's descriptors as a hostile one may make them. */
static struct forgery {
	int region, stats;
	uint64_t id;			/* of the region */
	struct stats_header header;
	struct stats_record record;
} forged;

static int make_memfd(const char *name, uint64_t length)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)length), 0);
	return fd;
}

static void write_at(int fd, const void *data, size_t size, uint64_t offset)
{
	assert_int_equal(pwrite(fd, data, size, (off_t)offset), size);
}

static int setup(void **state)
{
	struct stat stat;

	memset(&forged, 0, sizeof(forged));
	forged.region = make_memfd("actmem:forged", LENGTH);
	assert_int_equal(fallocate(forged.region, 0, 0, LENGTH), 0);
	assert_int_equal(fstat(forged.region, &stat), 0);
	forged.stats = make_memfd(published_stats.label, STATS_FILE_BYTES);
	publish_start(&published_stats, &forged.header.start);
	forged.header.records = 1;
	forged.record.device = stat.st_dev;
	forged.id = stat.st_ino;
	forged.record.id = forged.id;
	forged.record.page_bytes = 4096;
	forged.record.mapped_bytes = LENGTH;
	forged.record.pinned_bytes = 4096;
	forged.record.pages = ACTMEM_PAGES_4K;
	forged.record.node_bytes[5] = LENGTH;
	return 0;
}

static int teardown(void **state)
{
	close(forged.region);
	close(forged.stats);
	return 0;
}

static void publish(void)
{
	write_at(forged.stats, &forged.header, sizeof(forged.header), 0);
	write_at(forged.stats, &forged.record, sizeof(forged.record), STATS_HEADER_BYTES);
	fcntl(forged.stats, F_ADD_SEALS, SEALS);
}

static uint64_t on_node_5;		/* bytes of what was found last */

/* How often the memfd is listed; *@found is one of them. Others may run this test, too. */
static unsigned int listed(uint64_t id, struct actmem_region_info *found)
{
	struct actmem_region_info *list;
	unsigned int times = 0;
	size_t count, i;

	assert_int_equal(actmem_region_list(&list, &count), 0);
	for (i = 0; i < count; i++) {
		if (list[i].backend != ACTMEM_BACKEND_MEMFD || list[i].id != id)
			continue;
		*found = list[i];
		found->node_bytes = NULL;
		on_node_5 = list[i].node_count > 5 ? list[i].node_bytes[5] : 0;
		times++;
	}
	free(list);
	return times;
}

static void assert_believed(bool believed)
{
	struct actmem_region_info info;

	assert_int_equal(listed(forged.id, &info), 1);
	assert_string_equal(info.name, "forged");
	assert_int_equal(info.length, LENGTH);
	assert_int_equal(info.pid, getpid());
	assert_int_equal(on_node_5, believed ? LENGTH : 0);
	assert_int_equal(info.mapped_bytes, believed ? LENGTH : 0);
}

static void test_believed(void **state)
{
	publish();
	assert_believed(true);
}

/* Its process has not told of pages that have gone since. */
static void test_older_than_the_file(void **state)
{
	struct actmem_region_info info;

	forged.record.pinned_bytes = LENGTH;
	publish();
	assert_int_equal(fallocate(forged.region, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   LENGTH / 2), 0);
	assert_int_equal(listed(forged.id, &info), 1);
	assert_int_equal(info.allocated_bytes, LENGTH / 2);
	assert_int_equal(on_node_5, 0);
	assert_int_equal(info.pinned_bytes, LENGTH / 2);
	assert_int_equal(info.mapped_bytes, LENGTH);
}

static void test_nothing_published(void **state)
{
	assert_believed(false);
}

/* The reader refuses a header with one wrong field, and takes it once that is right. */
static void assert_refused(const struct forgery *good)
{
	publish();
	assert_believed(false);
	forged = *good;
}

static void test_wrong_headers(void **state)
{
	struct forgery good = forged;

	forged.header.start.magic++;
	assert_refused(&good);
	forged.header.start.version++;
	assert_refused(&good);
	/* As a child that has inherited the descriptor. */
	forged.header.start.pid++;
	assert_refused(&good);
	forged.header.records = UINT32_MAX;
	assert_refused(&good);
	publish();
	assert_believed(true);
}

static void test_wrong_records(void **state)
{
	struct forgery good = forged;

	forged.record.sequence = 1;	/* for ever in the midst of writing */
	assert_refused(&good);
	forged.record.pages = 99;
	assert_refused(&good);
	forged.record.page_bytes = 0;
	assert_refused(&good);
	forged.record.mapped_bytes = LENGTH + 1;
	assert_refused(&good);
	forged.record.node_bytes[1023] = UINT64_MAX;	/* the sum wraps */
	assert_refused(&good);
	forged.record.id++;
	assert_refused(&good);
}

static void test_wrong_files(void **state)
{
	int i, more[200];

	/* Too short, too long, not sealed: none is read. */
	close(forged.stats);
	forged.stats = make_memfd(published_stats.label, 8192 + STATS_RECORD_BYTES);
	publish();
	assert_believed(false);
	close(forged.stats);
	forged.stats = make_memfd(published_stats.label, STATS_FILE_BYTES + 1);
	publish();
	assert_believed(false);
	close(forged.stats);
	forged.stats = make_memfd(published_stats.label, STATS_FILE_BYTES);
	write_at(forged.stats, &forged.header, sizeof(forged.header), 0);
	write_at(forged.stats, &forged.record, sizeof(forged.record), STATS_HEADER_BYTES);
	assert_believed(false);
	/* More of them than one process needs. */
	publish();
	for (i = 0; i < 200; i++) {
		more[i] = dup(forged.stats);
		assert_true(more[i] >= 0);
	}
	assert_believed(true);
	for (i = 0; i < 200; i++)
		close(more[i]);
}

/* The list moves in memory when it gets long. */
static void test_long_list(void **state)
{
	int i, more[40];

	publish();
	for (i = 0; i < 40; i++)
		more[i] = make_memfd("actmem:more", LENGTH);
	assert_believed(true);
	for (i = 0; i < 40; i++)
		close(more[i]);
}

/* An open that waits for the owner of a lease would wait 45 seconds. */
static void test_lease(void **state)
{
	sighandler_t before = signal(SIGIO, SIG_IGN);
	char path[64];
	int fd;

	publish();
	/* Not of the first descriptor: memfd_create() does not count it as a writer. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", forged.stats);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(dup2(fd, forged.stats), forged.stats);
	close(fd);
	assert_int_equal(fcntl(forged.stats, F_SETLEASE, F_WRLCK), 0);
	assert_believed(false);
	assert_int_equal(fcntl(forged.stats, F_SETLEASE, F_UNLCK), 0);
	assert_believed(true);
	signal(SIGIO, before);
}

static void test_wrong_names(void **state)
{
	const char *const names[] = { "actmem:bell\a", "actmem:\x1b[31m", "actmem:\xff" };
	struct actmem_region_info *list;
	unsigned int i;
	size_t count, j;
	int fd;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		fd = make_memfd(names[i], LENGTH);
		assert_int_equal(actmem_region_list(&list, &count), 0);
		for (j = 0; j < count; j++)
			assert_string_not_equal(list[j].name, names[i] + 7);
		free(list);
		close(fd);
	}
}

/* fork() without the handlers that the library installs. */
static void test_raw_fork(void **state)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .name = "raw fork",
	};
	struct actmem_region_info info = { .size = sizeof(info) };
	struct actmem_region *region;
	struct actmem *am;
	pid_t child;

	assert_int_equal(open_small(&am), 0);
	assert_int_equal(actmem_region_create(am, &options, &region), 0);
	child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
	if (!child) {
		pause();
		_exit(0);
	}
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_int_equal(listed(info.id, &info), 1);
	assert_int_equal(info.pid, getpid());
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(actmem_close(am), 0);
}

/* A region's owner is its maker, even if an older process has received it. */
static void test_maker(void **state)
{
	struct actmem_region_info info = { .size = sizeof(info) };
	int fd, pipes[2], received, times;
	struct actmem_region *region;
	struct actmem *am;
	char path[64];
	pid_t child;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (!child) {
		if (open_small(&am) || create_region(am, LENGTH, 0, &region))
			_exit(1);
		fd = actmem_region_fd(region);
		if (write(pipes[1], &fd, sizeof(fd)) == sizeof(fd))
			pause();
		_exit(1);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &fd, sizeof(fd)), sizeof(fd));
	close(pipes[0]);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", child, fd);
	received = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(open_small(&am), 0);
	assert_int_equal(actmem_region_from_fd(am, received, &region), 0);
	close(received);
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	times = listed(info.id, &info);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(times, 1);
	assert_int_equal(info.pid, child);
	assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(actmem_close(am), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_believed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_older_than_the_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_published, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_headers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_records, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_list, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lease, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_names, setup, teardown),
		cmocka_unit_test(test_raw_fork),
		cmocka_unit_test(test_maker),
	};

	return cmocka_run_group_tests_name("processes", tests, NULL, NULL);
}
