/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Long ranges, whose pages several threads have made at once: each page once, also if
 * there are fewer threads than there could be; and what is refused is told as if one call
 * had asked for all of it. The driver is a function that knows which pages are there.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../uapi/actmem.h"
#include "actmem.h"
#include "faults.h"

#define MIB		(1ULL << 20)
#define PAGES		512			/* 1 GiB */
#define WHOLE		(PAGES * ACTMEM_PAGE_BYTES)
#define CALLS_MAX	1024
#define THREADS_MAX	16
#define PAUSE_US	100
/* At least 10 s, so that a helper that never starts fails a test and does not hang it. */
#define AWAIT_PAUSES	(10 * 1000000 / PAUSE_US)

static struct {
	pthread_mutex_t lock;
	bool there[PAGES];
	unsigned int count;		/* pages that are there */
	unsigned int charged;		/* pages that calls may make, made or not yet */
	unsigned int limit;		/* of pages; each call is refused that wants more */
	unsigned int full;		/* or, when there are so many, the node is */
	bool refuses_parts;
	uint32_t policy;
	bool with_signals;		/* one could have been delivered in a helper */
	unsigned int calls, of_caller;
	pthread_t caller, threads[THREADS_MAX];
	unsigned int thread_count;
	unsigned int awaited;		/* the caller's call waits for this many helpers */
} driver = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct actmem *am;

static void note_thread(void)
{
	unsigned int i;
	sigset_t set;

	driver.calls++;
	if (pthread_equal(pthread_self(), driver.caller)) {
		driver.of_caller++;
		return;
	}
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	driver.with_signals |= !sigismember(&set, SIGTERM) || !sigismember(&set, SIGCHLD);
	for (i = 0; i < driver.thread_count; i++)
		if (pthread_equal(pthread_self(), driver.threads[i]))
			return;
	assert_true(driver.thread_count < THREADS_MAX);
	driver.threads[driver.thread_count++] = pthread_self();
}

static int refuse(struct actmem_why *why, uint32_t reason, unsigned int wanted,
		  unsigned int available)
{
	why->reason = reason;
	why->node = reason == ACTMEM_WHY_NODE_FULL ? 1 : -1;
	why->wanted = wanted * ACTMEM_PAGE_BYTES;
	why->available = available * ACTMEM_PAGE_BYTES;
	return reason == ACTMEM_WHY_NODE_FULL ? ENOMEM : EDQUOT;
}

/* As the driver: a limit is asked for all that is wanted, a node page by page. */
static int populate(struct actmem_ioctl_range *range)
{
	unsigned int first = (unsigned int)(range->offset / ACTMEM_PAGE_BYTES), i;
	unsigned int count = (unsigned int)(range->length / ACTMEM_PAGE_BYTES);
	unsigned int wanted = 0, placed = 0, pauses = 0;
	int error = 0;

	assert_true(range->length && first + count <= PAGES);
	pthread_mutex_lock(&driver.lock);
	note_thread();
	for (i = first; i < first + count; i++)
		wanted += !driver.there[i];
	if (driver.refuses_parts && range->length < WHOLE)
		error = ENOMEM;
	else if (driver.limit && driver.charged + wanted > driver.limit)
		error = refuse(&range->why, ACTMEM_WHY_USER_LIMIT, wanted,
			       driver.limit - driver.charged);
	else
		driver.charged += wanted;
	range->done = 0;
	for (i = first; !error && i < first + count; i++) {
		if (!driver.there[i] && driver.full && driver.count == driver.full) {
			error = refuse(&range->why, ACTMEM_WHY_NODE_FULL, wanted, placed);
			break;
		}
		placed += !driver.there[i];
		driver.count += !driver.there[i];
		driver.there[i] = true;
		range->done += ACTMEM_PAGE_BYTES;
		/* Zeroing takes its time, in which others go on. */
		do {
			pthread_mutex_unlock(&driver.lock);
			usleep(PAUSE_US);
			pthread_mutex_lock(&driver.lock);
		} while (pthread_equal(pthread_self(), driver.caller) &&
			 driver.thread_count < driver.awaited && pauses++ < AWAIT_PAUSES);
	}
	pthread_mutex_unlock(&driver.lock);
	return error;
}

static int answer_info(struct actmem_ioctl_info *info)
{
	info->length = WHOLE;
	info->page_bytes = ACTMEM_PAGE_BYTES;
	info->id = 1;
	info->policy = driver.policy;
	pthread_mutex_lock(&driver.lock);
	info->allocated_bytes = driver.count * ACTMEM_PAGE_BYTES;
	pthread_mutex_unlock(&driver.lock);
	if (info->node_count)
		((uint64_t *)(uintptr_t)info->node_bytes)[1] = info->allocated_bytes;
	return 0;
}

static int answer(int fd, unsigned long request, void *argument)
{
	struct actmem_ioctl_query *query = argument;
	struct actmem_ioctl_create *create = argument;

	switch (request) {
	case ACTMEM_IOC_QUERY:
		query->abi = ACTMEM_ABI_VERSION;
		query->abi_oldest = ACTMEM_ABI_OLDEST;
		query->page_bytes = ACTMEM_PAGE_BYTES;
		query->max_region_bytes = WHOLE;
		return 0;
	case ACTMEM_IOC_CREATE:
		create->fd = dup(STDERR_FILENO);
		return 0;
	case ACTMEM_IOC_POPULATE:
		return populate(argument);
	case ACTMEM_IOC_INFO:
		return answer_info(argument);
	default:
		return ENOTTY;
	}
}

static void forget_pages(void)
{
	memset(driver.there, 0, sizeof(driver.there));
	driver.count = driver.charged = driver.calls = driver.of_caller = driver.thread_count = 0;
}

static int setup(void **state)
{
	struct actmem_options options;

	forget_pages();
	driver.limit = driver.full = driver.awaited = 0;
	driver.policy = ACTMEM_POLICY_INTERLEAVE;
	driver.refuses_parts = driver.with_signals = false;
	driver.caller = pthread_self();
	fake_device(answer);
	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_DRIVER;
	return actmem_open(&am, &options);
}

static int teardown(void **state)
{
	fail_nothing();
	return actmem_close(am);
}

static int create(uint32_t flags, struct actmem_region **region)
{
	return create_region(am, WHOLE, flags, region);
}

static void create_and_close(void)
{
	struct actmem_region *region;

	forget_pages();
	assert_int_equal(create(0, &region), 0);
	assert_int_equal(driver.count, PAGES);
	assert_int_equal(actmem_region_close(region), 0);
}

static void test_threads(void **state)
{
	static const struct {
		unsigned int cpus, threads;
	} cases[] = { { 1, 0 }, { 2, 1 }, { 3, 1 }, { 8, 4 }, { 64, 15 } };
	struct holdings before = held_now();
	unsigned int i;
	int cancel;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_cpus(cases[i].cpus);
		driver.awaited = !!cases[i].threads;
		create_and_close();
		assert_in_range(driver.thread_count, !!cases[i].threads, cases[i].threads);
		/* One asks for all of it, and has it. */
		assert_int_equal(driver.of_caller, 1);
	}
	assert_false(driver.with_signals);
	assert_same_held(before);
	/* The thread can be cancelled as before. */
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &cancel);
	assert_int_equal(cancel, PTHREAD_CANCEL_ENABLE);
}

/* Where pages go to the CPU's node, no helper is on another. */
static void test_near(void **state)
{
	unsigned int cpus = (unsigned int)sysconf(_SC_NPROCESSORS_CONF);

	driver.policy = ACTMEM_POLICY_PREFERRED;
	fake_cpus(256);
	create_and_close();
	assert_in_range(driver.thread_count, 0, cpus / 2);
	fail_every("open", ENOENT);
	create_and_close();
	assert_int_equal(driver.calls, 1);
}

/* Ends the hold of madvise() when a helper has called it. Returns NULL if no helper comes. */
static void *await_helper(void *data)
{
	unsigned int pauses = 0;
	bool seen;

	while (!(seen = slow_calls_of("actmem-populate")) && pauses++ < AWAIT_PAUSES)
		usleep(PAUSE_US);
	slow_call("", 0);
	return seen ? data : NULL;
}

static void test_memory_files(void **state)
{
	struct actmem_region_options options = { .size = sizeof(options) };
	struct actmem_region *region;
	struct actmem_region_info info = { .size = sizeof(info) };
	struct actmem *memfd;
	pthread_t awaiting;
	void *seen;

	fake_device(NULL);
	fake_cpus(8);
	assert_int_equal(open_memfd(&memfd, ACTMEM_PAGES_4K, ACTMEM_ALLOW_UNLOCKED), 0);
	options.length = 192 * MIB;
	options.flags = ACTMEM_REGION_LAZY;
	assert_int_equal(actmem_region_create(memfd, &options, &region), 0);
	slow_call("madvise", SLOW_HELD);
	assert_int_equal(pthread_create(&awaiting, NULL, await_helper, memfd), 0);
	assert_int_equal(actmem_region_populate(region, 0, options.length), 0);
	assert_int_equal(pthread_join(awaiting, &seen), 0);
	assert_non_null(seen);
	assert_int_equal(actmem_region_get_info(region, &info), 0);
	assert_int_equal(info.allocated_bytes, options.length);
	assert_int_equal(actmem_region_close(region), 0);
	assert_int_equal(actmem_close(memfd), 0);
}

static void test_no_threads(void **state)
{
	fake_cpus(8);
	fail_every("pthread_create", EAGAIN);
	create_and_close();
	assert_int_equal(driver.calls, 1);
	fail_call("pthread_create", 2, EAGAIN);
	driver.awaited = 1;
	create_and_close();
	assert_int_equal(driver.thread_count, 1);
	fail_every("", 0);
	driver.awaited = 0;
	/* Without their help, the caller goes on. */
	driver.refuses_parts = true;
	create_and_close();
	assert_int_equal(driver.of_caller, 1);
	assert_in_range(driver.calls, 1, 5);
}

static void test_short_range(void **state)
{
	struct actmem_region *region;

	fake_cpus(8);
	assert_int_equal(create(ACTMEM_REGION_LAZY, &region), 0);
	assert_int_equal(driver.calls, 0);
	assert_int_equal(actmem_region_populate(region, 0, 62 * MIB), 0);
	assert_int_equal(driver.calls, 1);
	driver.awaited = 1;
	assert_int_equal(actmem_region_populate(region, 512 * MIB, 66 * MIB), 0);
	assert_int_equal(driver.of_caller, 2);
	assert_in_range(driver.thread_count, 1, 1);
	assert_int_equal(driver.count, 64);
	assert_int_equal(actmem_region_close(region), 0);
}

/* Pages that helpers made meanwhile are part of what was wanted, and was left. */
static void test_limit(void **state)
{
	struct holdings before = held_now();
	struct actmem_region *region;
	unsigned int round;

	fake_cpus(16);
	driver.limit = PAGES / 2;
	for (round = 0; round < 20; round++) {
		forget_pages();
		assert_fails(create(0, &region), EDQUOT, "has 512.0 MiB left, but 1.0 GiB are needed");
		assert_same_held(before);
	}
	driver.limit = 0;
	driver.full = PAGES / 4;
	for (round = 0; round < 5; round++) {
		forget_pages();
		assert_fails(create(0, &region), ENOMEM,
			     "node 1 has 256.0 MiB free, but 1.0 GiB are needed");
		assert_same_held(before);
	}
	/* Of a range of a region that is there, too. */
	forget_pages();
	assert_int_equal(create(ACTMEM_REGION_LAZY, &region), 0);
	assert_int_equal(actmem_region_populate(region, 0, 64 * MIB), 0);
	assert_fails(actmem_region_populate(region, 0, WHOLE), ENOMEM,
		     "node 1 has 192.0 MiB free, but 960.0 MiB are needed");
	assert_non_null(strstr(actmem_error(), "of the 1.0 GiB are populated"));
	assert_int_equal(actmem_region_close(region), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_near, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_short_range, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
	};

	return cmocka_run_group_tests_name("helpers", tests, NULL, NULL);
}
