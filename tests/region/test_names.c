/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions that are files: when system calls fail, on tmpfs; and what the driver's
 * answers become.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actmem.h"
#include "machine/node.h"
#include "../../uapi/actmem.h"
#include "faults.h"

#define LENGTH	(64ULL << 10)
#define HUGE	(2ULL << 20)

static char path[64];
static char heap_file[sizeof(path) + 2];

static struct actmem *am;
static struct holdings before_open, before;

static int open_handle(enum actmem_backend backend, const char *heap_name)
{
	struct actmem_options options = {
		.size = sizeof(options), .backend = backend, .heap_name = heap_name,
		.pages = backend == ACTMEM_BACKEND_MEMFD ? ACTMEM_PAGES_4K : ACTMEM_PAGES_2M,
	};
	int error;

	before_open = held_now();
	error = actmem_open(&am, &options);
	before = held_now();
	return error;
}

static int set_up(void **state)
{
	return open_handle(ACTMEM_BACKEND_MEMFD, NULL);
}

static int tear_down(void **state)
{
	fail_nothing();
	assert_same_held(before);
	unlink(path);
	assert_int_equal(actmem_close(am), 0);
	assert_same_held(before_open);
	return 0;
}

static int open_name(uint64_t length, uint32_t flags, uint32_t allow, struct actmem_region **region)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = length, .policy = ACTMEM_PLACE_BIND,
		.nodes.word[0] = 1, .allow = allow,
	};

	return actmem_region_open(am, path, &options, flags, region);
}

/* Is opened, and closed; whether it was found. */
static int is_found(uint64_t length, uint32_t flags, uint32_t allow)
{
	struct actmem_region *region;
	int found;

	assert_int_equal(open_name(length, flags, allow, &region), 0);
	found = actmem_region_found(region);
	assert_int_equal(actmem_region_close(region), 0);
	return found;
}

/* Made, found, and a heap; stops at the first failure and cleans up. */
static int whole_life(void)
{
	struct actmem_region *region = NULL, *second = NULL, *third = NULL;
	int error = open_handle(ACTMEM_BACKEND_MEMFD, path);

	if (error)
		return error;
	error = open_name(LENGTH, ACTMEM_OPEN_CREATE, 0, &region);
	if (!error)
		error = open_name(LENGTH, ACTMEM_OPEN_LOCK, 0, &second);
	if (!error)
		error = actmem_region_from_fd(am, actmem_region_fd(region), &third);
	if (!error)
		error = live_of_heap(am, HUGE);
	if (third)
		assert_int_equal(actmem_region_close(third), 0);
	if (second)
		assert_int_equal(actmem_region_close(second), 0);
	if (region)
		assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(actmem_close(am), 0);
	return error;
}

/* Whatever failed, what has the name is complete. */
static void assert_complete(const char *name, uint64_t length)
{
	struct stat file;

	if (stat(name, &file))
		return;
	assert_int_equal(file.st_size, length);
	assert_int_equal(file.st_blocks * 512, length);
	assert_int_equal(unlink(name), 0);
}

static int live_and_look(void *unused)
{
	int error = whole_life();

	assert_complete(path, LENGTH);
	assert_complete(heap_file, HUGE);
	return error;
}

static void test_sweep(void **state)
{
	fail_each(live_and_look, NULL, 20);
}

static void test_words(void **state)
{
	static const struct {
		const char *call;
		unsigned int nth;
		int error, wanted;
		const char *words;
	} faults[] = {
		{ "statfs", 1, EIO, EIO, "cannot check" },
		{ "open", 1, EACCES, EACCES, "cannot open" },
		{ "open", 2, EACCES, EACCES, "cannot open " NAMES_FOLDER },
		{ "linkat", 1, EPERM, EPERM, "linkat" },
		{ "ftruncate", 1, EPERM, EPERM, "cannot size a file to 64.0 KiB" },
		{ "mmap", 1, EAGAIN, EAGAIN, "cannot map 64.0 KiB" },
		{ "mmap", 2, EAGAIN, EAGAIN, "cannot map 64.0 KiB" },
		{ "flock", 1, ENOLCK, ENOLCK, "cannot lock" },
	};
	struct actmem_region *region;
	unsigned int i;

	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		fail_call(faults[i].call, faults[i].nth, faults[i].error);
		assert_fails(open_name(LENGTH, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_LOCK, 0,
				       &region),
			     faults[i].wanted, faults[i].words);
		fail_nothing();
		assert_same_held(before);
		assert_int_equal(access(path, F_OK), -1);
	}
}

/* Without /proc a file gets its name by its descriptor. */
static void test_no_proc(void **state)
{
	struct actmem_region_info *regions;
	struct actmem_region *region;
	size_t count;

	fail_call("linkat", 1, ENOENT);
	if (!geteuid()) {
		assert_int_equal(is_found(LENGTH, ACTMEM_OPEN_CREATE, 0), 0);
		assert_complete(path, LENGTH);
	}
	fail_every("linkat", ENOENT);
	assert_fails(open_name(LENGTH, ACTMEM_OPEN_CREATE, 0, &region), ENOENT, "is /proc mounted?");
	fail_every("access", ENOENT);
	assert_fails(actmem_region_list(&regions, &count), ENOENT, "/proc is not mounted");
}

/* A process that gets too little memory waits until the others are through, and tries again. */
static void test_second_try(void **state)
{
	struct actmem_region *region;

	fail_call("mmap", 1, ENOMEM);
	assert_int_equal(is_found(LENGTH, ACTMEM_OPEN_CREATE, 0), 0);
	assert_complete(path, LENGTH);
	fail_every("mmap", ENOMEM);
	assert_fails(open_name(LENGTH, ACTMEM_OPEN_CREATE, 0, &region), ENOMEM, "cannot map");
}

/* Somebody else makes it right after this one saw that it is not there. */
static void test_exclusive_race(void **state)
{
	struct actmem_region *region;

	assert_int_equal(is_found(LENGTH, ACTMEM_OPEN_CREATE, 0), 0);
	fail_call("access", 1, ENOENT);
	assert_fails(open_name(LENGTH, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_EXCLUSIVE, 0, &region),
		     EEXIST, "exists already");
	assert_complete(path, LENGTH);
}

/* Pages of a region that was found lie on another node than is wanted. */
static void test_found_elsewhere(void **state)
{
	struct actmem_region *region;

	assert_int_equal(is_found(LENGTH, ACTMEM_OPEN_CREATE, 0), 0);
	fake_node(5);
	assert_fails(open_name(LENGTH, 0, 0, &region), EEXIST, "page 0 is on node 5, not on node 0");
	assert_non_null(strstr(actmem_error(), "ACTMEM_ALLOW_NODE"));
	assert_int_equal(is_found(LENGTH, 0, ACTMEM_ALLOW_NODE), 1);
	assert_non_null(strstr(actmem_error(), "used it as it is"));
	assert_complete(path, LENGTH);
}

/* What the driver answers. */
static struct {
	int create_error, populate_error;
	bool becomes_a_region;		/* the file of the name, by somebody else */
	bool was_named;			/* what CREATE was asked for */
	struct stat seen;		/* of the name, while pages were made */
	uint32_t reason;
	struct actmem_ioctl_create asked;
	uint32_t policy;
	uint64_t nodes;
} driver;

static int answer_query(struct actmem_ioctl_query *query)
{
	query->abi = ACTMEM_ABI_VERSION;
	query->abi_oldest = ACTMEM_ABI_OLDEST;
	query->page_bytes = ACTMEM_PAGE_BYTES;
	query->max_region_bytes = 16ULL << 40;
	return 0;
}

static int answer_create(int fd, struct actmem_ioctl_create *create)
{
	struct stat stat;

	driver.asked = *create;
	create->id = 77;
	assert_int_equal(fstat(fd, &stat), 0);
	driver.was_named = stat.st_nlink;
	if (driver.becomes_a_region)
		assert_int_equal(truncate(path, (off_t)create->length), 0);
	if (driver.create_error)
		return driver.create_error;
	return ftruncate(fd, (off_t)create->length) ? errno : 0;
}

/* Others look at the name meanwhile. */
static int answer_populate(struct actmem_ioctl_range *range)
{
	range->why.reason = driver.reason;
	range->why.wanted = range->length;
	range->why.available = 1 << 20;
	assert_int_equal(stat(path, &driver.seen), 0);
	if (driver.becomes_a_region)
		assert_int_equal(truncate(path, (off_t)range->length), 0);
	return driver.populate_error;
}

static int answer_info(struct actmem_ioctl_info *info)
{
	info->id = 77;
	info->length = HUGE;
	info->page_bytes = ACTMEM_PAGE_BYTES;
	info->policy = driver.policy;
	info->nodes[0] = driver.nodes;
	info->state = ACTMEM_INFO_NAMED;
	return 0;
}

static int answer(int fd, unsigned long request, void *argument)
{
	switch (request) {
	case ACTMEM_IOC_QUERY:
		return answer_query(argument);
	case ACTMEM_IOC_CREATE:
		return answer_create(fd, argument);
	case ACTMEM_IOC_POPULATE:
		return answer_populate(argument);
	case ACTMEM_IOC_INFO:
		return answer_info(argument);
	default:
		return ENOTTY;
	}
}

static int setup_driver(void **state)
{
	memset(&driver, 0, sizeof(driver));
	driver.nodes = 1;
	fake_device(answer);
	fake_file_system(ACTMEM_SUPER_MAGIC);
	return open_handle(ACTMEM_BACKEND_DRIVER, NULL);
}

static void test_driver_makes(void **state)
{
	struct actmem_region *region;
	struct stat found;

	assert_int_equal(open_name(HUGE, ACTMEM_OPEN_CREATE, 0, &region), 0);
	assert_int_equal(actmem_region_found(region), 0);
	assert_int_equal(driver.asked.length, HUGE);
	assert_int_equal(driver.asked.fd, -1);
	assert_int_equal(driver.asked.policy, ACTMEM_POLICY_BIND);
	assert_string_equal(driver.asked.name, "");
	assert_false(driver.was_named);
	assert_int_equal(driver.seen.st_size, 0);
	assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(stat(path, &found), 0);
	assert_int_equal(found.st_size, HUGE);
	assert_int_equal(is_found(HUGE, ACTMEM_OPEN_CREATE, 0), 1);
}

static void test_driver_refuses(void **state)
{
	struct actmem_region *region;

	driver.populate_error = ENOSPC;
	driver.reason = ACTMEM_WHY_MOUNT_LIMIT;
	assert_fails(open_name(HUGE, ACTMEM_OPEN_CREATE, 0, &region), ENOSPC,
		     "1.0 MiB left, but 2.0 MiB are needed");
	assert_non_null(strstr(actmem_error(), "mount -o remount,size="));
	assert_non_null(strstr(actmem_error(), NAMES_FOLDER));
	assert_int_equal(access(path, F_OK), -1);
	assert_fails(open_name(HUGE, 0, 0, &region), ENOENT, path);
}

/* The maker of an empty file keeps it whatever fails: it may be there for its permissions. */
static void test_driver_keeps_empty(void **state)
{
	int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	struct actmem_region *region;
	struct stat stat;

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, 0660), 0);
	close(fd);
	driver.populate_error = ENOSPC;
	driver.reason = ACTMEM_WHY_MOUNT_LIMIT;
	assert_fails(open_name(HUGE, ACTMEM_OPEN_CREATE, 0, &region), ENOSPC, " left, but ");
	assert_int_equal(lstat(path, &stat), 0);
	assert_int_equal(stat.st_size, 0);
	assert_same_held(before);
	driver.populate_error = 0;
	fail_every("linkat", EIO);
	assert_fails(open_name(HUGE, ACTMEM_OPEN_CREATE, 0, &region), EIO, "cannot name");
	fail_every("", 0);
	assert_same_held(before);
	assert_int_equal(open_name(HUGE, ACTMEM_OPEN_CREATE, 0, &region), 0);
	assert_int_equal(actmem_region_found(region), 0);
	assert_int_equal(lstat(path, &stat), 0);
	assert_int_equal(stat.st_size, HUGE);
	assert_int_equal(stat.st_mode & 0777, 0660);
	assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/no/such/file", path), 0);
	assert_fails(open_name(HUGE, ACTMEM_OPEN_CREATE, 0, &region), EEXIST, "is a link to");
}

/* A program that does not wait makes the empty file a region meanwhile. */
static void test_driver_race(void **state)
{
	struct actmem_region *region;

	driver.becomes_a_region = true;
	assert_int_equal(is_found(HUGE, ACTMEM_OPEN_CREATE, 0), 1);
	assert_fails(open_name(HUGE, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_EXCLUSIVE, 0, &region),
		     EEXIST, "exists already");
}

static void test_driver_found_otherwise(void **state)
{
	struct actmem_region_options options = { .size = sizeof(options), .length = HUGE };
	struct actmem_region *region;

	assert_int_equal(is_found(HUGE, ACTMEM_OPEN_CREATE, 0), 0);
	assert_fails(open_name(2 * HUGE, ACTMEM_OPEN_CREATE, 0, &region), EEXIST,
		     "with 2.0 MiB, but 4.0 MiB were requested");
	driver.policy = ACTMEM_POLICY_INTERLEAVE;
	driver.nodes = 6;
	assert_fails(open_name(HUGE, 0, 0, &region), EEXIST,
		     "policy interleave on nodes 1-2, but bind on node 0 was requested");
	assert_int_equal(is_found(HUGE, 0, ACTMEM_ALLOW_NODE), 1);
	assert_non_null(strstr(actmem_error(), "used it as it is"));
	/* Without a policy, the one that is there holds. */
	assert_int_equal(actmem_region_open(am, path, &options, 0, &region), 0);
	assert_string_equal(actmem_error(), "");
	assert_int_equal(actmem_region_close(region), 0);
	options.pages = ACTMEM_PAGES_4K;
	assert_fails(actmem_region_open(am, path, &options, 0, &region), EOPNOTSUPP,
		     "the driver has only 2M pages");
	assert_null(strstr(actmem_error(), "with backend"));
	options.pages = ACTMEM_PAGES_1G;
	options.length = 0;
	assert_fails(actmem_region_open(am, path, &options, 0, &region), EOPNOTSUPP,
		     "use a path on a hugetlbfs that is mounted with pagesize=1G");
	assert_null(strstr(actmem_error(), "with backend"));
	options.allow = ACTMEM_ALLOW_2M;
	assert_int_equal(actmem_region_open(am, path, &options, 0, &region), 0);
	assert_string_equal(actmem_error(),
			    "the driver has only 2M pages; used 2 MiB pages instead");
	assert_int_equal(actmem_region_close(region), 0);
}

#define MEMFD_TEST(test)	cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define DRIVER_TEST(test)	cmocka_unit_test_setup_teardown(test, setup_driver, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sweep),
		MEMFD_TEST(test_words),
		MEMFD_TEST(test_no_proc),
		MEMFD_TEST(test_second_try),
		MEMFD_TEST(test_exclusive_race),
		MEMFD_TEST(test_found_elsewhere),
		DRIVER_TEST(test_driver_makes),
		DRIVER_TEST(test_driver_refuses),
		DRIVER_TEST(test_driver_keeps_empty),
		DRIVER_TEST(test_driver_race),
		DRIVER_TEST(test_driver_found_otherwise),
	};

	snprintf(path, sizeof(path), NAMES_PREFIX "-%d", getpid());
	snprintf(heap_file, sizeof(heap_file), "%s.0", path);
	return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
