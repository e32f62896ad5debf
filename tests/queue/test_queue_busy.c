/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What of a queue cannot be ended yet, told with how much of it there is, and nothing is
 * ended then.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "base/clock.h"
#include "faults.h"

#define LENGTH		(2ULL << 20)
#define BLOCK		(64ULL << 10)
/* Of blocks that are handed over two at a time. */
#define LONG		(512ULL << 10)
#define LATE_NS		(20 * NS_PER_SECOND)

static struct actmem *am;
static struct actmem_region *region;

static int make_region(struct actmem **its, struct actmem_region **result)
{
	struct actmem_region_options region_options;

	ACTMEM_INIT(&region_options);
	region_options.length = LENGTH;
	return open_small(its) || actmem_region_create(*its, &region_options, result);
}

static int open_region(void **state)
{
	return make_region(&am, &region);
}

static int close_region(void **state)
{
	fail_nothing();
	return actmem_region_close(region) || actmem_close(am);
}

static struct actmem_queue *make_queue_of(enum actmem_engine engine, unsigned int depth,
					  unsigned int workers, uint64_t block_bytes)
{
	struct actmem_queue_options options = {
		.size = sizeof(options), .engine = engine, .depth = depth, .workers = workers,
		.block_bytes = block_bytes,
	};
	struct actmem_queue *queue;

	assert_int_equal(actmem_queue_create(am, &options, &queue), 0);
	return queue;
}

static struct actmem_queue *make_queue(enum actmem_engine engine)
{
	return make_queue_of(engine, 0, 0, BLOCK);
}

/* Of io_uring; without it the test is skipped. */
static struct actmem_queue *make_ring(unsigned int depth, uint64_t block_bytes)
{
	struct actmem_queue *queue = make_queue_of(ACTMEM_ENGINE_AUTO, depth, 0, block_bytes);

	if (strncmp(actmem_queue_describe(queue), "io_uring", 8)) {
		assert_int_equal(actmem_queue_destroy(queue), 0);
		skip();
	}
	return queue;
}

static struct actmem_file *open_file(struct actmem_queue *queue)
{
	struct actmem_file *file;

	assert_int_equal(open_file_at(queue, "build/tests", ACTMEM_FILE_TEMPORARY, LENGTH,
				      &file), 0);
	return file;
}

static void end(struct actmem_queue *queue, struct actmem_file *file)
{
	assert_int_equal(actmem_queue_detach(queue, region), 0);
	assert_int_equal(actmem_file_close(file), 0);
	assert_int_equal(actmem_queue_destroy(queue), 0);
}

/* Waits for the next completion, which must have this result. */
static struct actmem_completion wait_for_result(struct actmem_queue *queue, int result)
{
	struct actmem_completion completion;

	assert_int_equal(actmem_queue_wait(queue, &completion, 1, LATE_NS), 1);
	assert_int_equal(completion.result, result);
	return completion;
}

static void assert_busy(struct actmem_queue *queue, const char *words)
{
	assert_fails(actmem_queue_destroy(queue), EBUSY, words);
}

static void test_under_way(void **state)
{
	struct actmem_queue *queue = make_queue(ACTMEM_ENGINE_WORKERS);
	struct actmem_completion completion;
	struct actmem_file *file;

	assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
	assert_busy(queue, "0 open files and 1 attached regions");
	assert_fails(actmem_region_close(region), EBUSY, "attached to 1 queue");
	file = open_file(queue);
	hold_transfers(true);
	assert_int_equal(actmem_queue_fill(queue, file, 0, region, 0, BLOCK, NULL), 0);
	assert_fails(actmem_queue_detach(queue, region), EBUSY, "1 requests of the region");
	assert_fails(actmem_file_close(file), EBUSY, "1 requests of");
	assert_fails(actmem_queue_wait(queue, &completion, 1, 0), ETIMEDOUT,
		     "1 requests has completed");
	hold_transfers(false);
	while (actmem_file_close(file))
		usleep(1000);
	assert_busy(queue, "1 unread completions, 0 open files and 1 attached");
	assert_int_equal(actmem_queue_detach(queue, region), 0);
	assert_fails(actmem_queue_detach(queue, region), ENOENT, "not attached");
	assert_busy(queue, "0 requests in progress, 1 unread completions");
	wait_for_result(queue, 0);
	file = open_file(queue);
	assert_busy(queue, "1 open files and 0 attached");
	assert_int_equal(actmem_file_close(file), 0);
	assert_int_equal(actmem_queue_destroy(queue), 0);
}

/* No more blocks are under way than the depth says, nor than there are workers. */
static void test_depth(void **state)
{
	static const unsigned int depths[] = { 2, 8, 1 }, workers[] = { 4, 3, 2 };
	static const unsigned int most[] = { 2, 3, 1 };
	struct actmem_completion completion;
	struct actmem_queue *queue;
	struct actmem_file *file;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		queue = make_queue_of(ACTMEM_ENGINE_WORKERS, depths[i], workers[i], BLOCK);
		assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
		file = open_file(queue);
		hold_transfers(true);
		assert_int_equal(actmem_queue_fill(queue, file, 0, region, 0, LENGTH, NULL), 0);
		while (held_transfers() < most[i])
			usleep(1000);
		/* One more would come by now. */
		usleep(10000);
		assert_int_equal(held_transfers(), most[i]);
		hold_transfers(false);
		assert_int_equal(actmem_queue_wait(queue, &completion, 1, ACTMEM_WAIT_FOREVER), 1);
		assert_int_equal(completion.bytes, LENGTH);
		end(queue, file);
	}
}

/* Files are served in turn: what is short in one does not wait for what is long in another. */
static void test_turns(void **state)
{
	struct actmem_queue *queue = make_queue_of(ACTMEM_ENGINE_WORKERS, 1, 1, BLOCK);
	struct actmem_file *one = open_file(queue), *other = open_file(queue);
	struct actmem_completion completions[2];
	struct actmem_queue_stats stats = { .size = sizeof(stats) };
	struct actmem_request request = { .size = sizeof(request) };
	unsigned int taken = 0;

	assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
	hold_transfers(true);
	request.cookie = 1;
	assert_int_equal(actmem_queue_fill(queue, one, 0, region, 0, LENGTH / 2, &request), 0);
	request.cookie = 2;
	assert_int_equal(actmem_queue_fill(queue, other, 0, region, LENGTH / 2, BLOCK, &request),
			 0);
	request.cookie = 3;
	assert_int_equal(actmem_queue_fill(queue, other, 0, region, LENGTH / 2, LENGTH / 2,
					   &request), 0);
	assert_int_equal(actmem_queue_cancel(queue, request.id), 0);
	assert_fails(actmem_queue_cancel(queue, request.id), ENOENT, "not in progress");
	hold_transfers(false);
	while (taken < 2)
		taken += (unsigned int)actmem_queue_wait(queue, completions + taken, 1,
							 ACTMEM_WAIT_FOREVER);
	assert_int_equal(completions[0].cookie, 3);
	assert_int_equal(completions[0].result, -ECANCELED);
	assert_int_equal(completions[1].cookie, 2);
	assert_int_equal(actmem_queue_wait(queue, completions, 1, ACTMEM_WAIT_FOREVER), 1);
	assert_int_equal(completions[0].cookie, 1);
	assert_int_equal(actmem_queue_get_stats(queue, &stats), 0);
	assert_int_equal(stats.requests_total, 3);
	assert_int_equal(stats.failures_total, 1);
	assert_int_equal(stats.filled_bytes_total, LENGTH / 2 + BLOCK);
	assert_int_equal(actmem_file_close(one), 0);
	end(queue, other);
}

static void fill_until(struct actmem_queue *queue, struct actmem_file *file, uint64_t cookie,
		       uint64_t deadline)
{
	struct actmem_request request = {
		.size = sizeof(request), .cookie = cookie, .deadline_ns = deadline,
	};

	assert_int_equal(actmem_queue_fill(queue, file, 0, region, 0, BLOCK, &request), 0);
}

/* Whichever was begun first, what is past its deadline ends. */
static void test_deadlines(void **state)
{
	struct actmem_queue *queue = make_queue_of(ACTMEM_ENGINE_WORKERS, 1, 1, BLOCK);
	struct actmem_completion completions[4];
	struct actmem_file *file = open_file(queue);
	unsigned int taken = 0;

	assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
	hold_transfers(true);
	fill_until(queue, file, 0, 0);
	while (!held_transfers())
		usleep(1000);
	fill_until(queue, file, 1, UINT64_MAX);
	fill_until(queue, file, 2, 2);
	fill_until(queue, file, 3, 1);
	assert_int_equal(actmem_queue_wait(queue, completions, 4, 0), 2);
	assert_int_equal(completions[0].cookie, 3);
	assert_int_equal(completions[0].result, -ETIME);
	assert_int_equal(completions[1].cookie, 2);
	assert_int_equal(completions[1].result, -ETIME);
	hold_transfers(false);
	while (taken < 2)
		taken += (unsigned int)actmem_queue_wait(queue, completions + taken, 2,
							 ACTMEM_WAIT_FOREVER);
	assert_int_equal(completions[0].result, 0);
	assert_int_equal(completions[1].result, 0);
	end(queue, file);
}

static struct actmem_queue *watched;
static sem_t meddled;

static struct actmem_request first;
static int cancelled;

static void cancel_first(void)
{
	cancelled = actmem_queue_cancel(watched, first.id);
	sem_post(&meddled);
}

/* Makes the ring that others watch, and a file for it. The first request hangs. */
static struct actmem_file *watch_ring(uint64_t offset)
{
	struct actmem_file *file;

	watched = make_ring(8, LONG);
	assert_int_equal(actmem_queue_attach(watched, region, 0), 0);
	file = open_file(watched);
	ACTMEM_INIT(&first);
	hang_transfers(true);
	assert_int_equal(actmem_queue_fill(watched, file, 0, region, offset, BLOCK, &first), 0);
	return file;
}

/*
 * A request that is cancelled while the ring's thread hands others over, long ones two at a
 * time, ends, though no other does, and nobody wakes that thread.
 */
static void test_cancelled_meanwhile(void **state)
{
	struct actmem_completion completion;
	struct actmem_request second = { .size = sizeof(second) };
	struct actmem_file *file;

	sem_init(&meddled, 0, 0);
	file = watch_ring(2 * LONG);
	before_submit(cancel_first);
	assert_int_equal(actmem_queue_fill(watched, file, 0, region, 0, 2 * LONG, &second), 0);
	while (sem_wait(&meddled))
		;
	assert_int_equal(cancelled, 0);
	completion = wait_for_result(watched, -ECANCELED);
	assert_int_equal(completion.id, first.id);
	hang_transfers(false);
	assert_int_equal(actmem_queue_cancel(watched, second.id), 0);
	wait_for_result(watched, -ECANCELED);
	sem_destroy(&meddled);
	end(watched, file);
}

static void *wait_for_first(void *data)
{
	struct actmem_completion *completion = data;

	actmem_queue_wait(watched, completion, 1, ACTMEM_WAIT_FOREVER);
	pthread_testcancel();
	return NULL;
}

static void *count_taken(void *data)
{
	struct actmem_completion completion;

	*(int *)data = actmem_queue_wait(watched, &completion, 1, ACTMEM_WAIT_FOREVER);
	return NULL;
}

/* Of two that wait for one request, the second learns that no more will come. */
static void test_two_waiters(void **state)
{
	struct actmem_file *file;
	pthread_t waiters[2];
	int taken[2], i;

	file = watch_ring(0);
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&waiters[i], NULL, count_taken, &taken[i]), 0);
	usleep(20000);
	alarm(LATE_NS / NS_PER_SECOND);
	assert_int_equal(actmem_queue_cancel(watched, first.id), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_join(waiters[i], NULL), 0);
	alarm(0);
	assert_int_equal(taken[0] + taken[1], 1);
	hang_transfers(false);
	end(watched, file);
}

/* A thread that is cancelled in its wait ends after it, and the queue is there for others. */
static void test_cancelled_thread(void **state)
{
	struct actmem_completion completion;
	struct actmem_file *file;
	pthread_t waiter;
	void *result;

	file = watch_ring(0);
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_first, &completion), 0);
	usleep(20000);
	assert_int_equal(pthread_cancel(waiter), 0);
	usleep(20000);
	alarm(LATE_NS / NS_PER_SECOND);
	assert_int_equal(actmem_queue_cancel(watched, first.id), 0);
	assert_int_equal(pthread_join(waiter, &result), 0);
	alarm(0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(completion.id, first.id);
	assert_int_equal(completion.result, -ECANCELED);
	hang_transfers(false);
	end(watched, file);
}

/* More than the ring's tables have room for, one after the other. */
static void test_slots(void **state)
{
	struct actmem_queue *queue = make_queue(ACTMEM_ENGINE_AUTO);
	unsigned int i;

	for (i = 0; i < 4100; i++) {
		assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
		assert_int_equal(actmem_queue_detach(queue, region), 0);
	}
	for (i = 0; i < 260; i++)
		assert_int_equal(actmem_file_close(open_file(queue)), 0);
	assert_int_equal(actmem_queue_destroy(queue), 0);
}

/* Sums that are too large for their type are not a valid ranges. */
static void test_ranges(void **state)
{
	static const uint64_t at = UINT64_MAX - BLOCK + 1;
	struct actmem_queue *queue = make_queue(ACTMEM_ENGINE_AUTO);
	struct actmem_file *file = open_file(queue);

	assert_int_equal(actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN), 0);
	assert_fails(actmem_queue_fill(queue, file, 0, region, at, 2 * BLOCK, NULL), EINVAL,
		     "not a valid range");
	assert_fails(actmem_queue_spill(queue, file, 0, region, at, 2 * BLOCK, NULL), EINVAL,
		     "not a valid range");
	assert_fails(actmem_queue_spill(queue, file, at, region, 0, 2 * BLOCK, NULL), EINVAL,
		     "not a valid range in a file");
	assert_fails(actmem_queue_spill(queue, file, INT64_MAX - BLOCK + 1, region, 0, 2 * BLOCK,
					NULL), EINVAL, "not a valid range in a file");
	assert_fails(actmem_queue_fill(queue, file, 0, region, 0, LENGTH + BLOCK, NULL), EINVAL,
		     "not a valid range");
	end(queue, file);
}

static void test_foreign_region(void **state)
{
	struct actmem_queue *queue = make_queue(ACTMEM_ENGINE_AUTO);
	struct actmem_region *foreign;
	struct actmem *other;

	assert_int_equal(make_region(&other, &foreign), 0);
	assert_fails(actmem_queue_fill(queue, NULL, 0, foreign, 0, LENGTH, NULL), EINVAL,
		     "come from different calls");
	assert_fails(actmem_queue_attach(queue, foreign, 0), EINVAL, "come from different calls");
	assert_int_equal(actmem_region_close(foreign), 0);
	assert_int_equal(actmem_close(other), 0);
	assert_int_equal(actmem_queue_destroy(queue), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_under_way, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_depth, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_turns, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_deadlines, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_cancelled_meanwhile, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_two_waiters, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_cancelled_thread, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_slots, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_ranges, open_region, close_region),
		cmocka_unit_test_setup_teardown(test_foreign_region, open_region, close_region),
	};

	return cmocka_run_group_tests_name("queue_busy", tests, NULL, NULL);
}
