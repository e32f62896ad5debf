/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Commands of a ring that are interrupted: one that was not asked to end goes on, as long
 * as there is a point in it. The driver is a function, as in test_driver.c.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "faults_driver.h"

#define COMMANDS_MAX	8

/* What the commands end with, one after the other, and the last one's for all others. */
static struct {
	int result;
	uint64_t done;
} answers[COMMANDS_MAX];
static unsigned int answer_count;
static _Atomic unsigned int commands;
static uint32_t operation;

static struct actmem *am;
static struct actmem_queue *queue;
static struct actmem_region *region;

static int answer(uint32_t request, void *argument)
{
	unsigned int i = commands < answer_count ? commands : answer_count - 1;
	struct actmem_ioctl_range *range = argument;

	assert_int_equal(range->offset, 0);
	assert_int_equal(range->length, LENGTH);
	operation = request;
	range->done = answers[i].done;
	commands++;
	return answers[i].result;
}

static int setup(void **state)
{
	struct actmem_queue_options wanted;
	int error;

	driver_setup(state);
	driver.features = ACTMEM_FEATURE_URING;
	fake_commands(answer);
	am = open_driver();
	assert_int_equal(create_region(am, LENGTH, ACTMEM_REGION_LAZY, &region), 0);
	ACTMEM_INIT(&wanted);
	wanted.engine = ACTMEM_ENGINE_URING;
	commands = 0;
	error = actmem_queue_create(am, &wanted, &queue);
	/* Where io_uring is refused for good there is nothing of it to be tested. */
	return error == -EPERM || error == -ENOSYS ? 0 : error;
}

static int teardown(void **state)
{
	if (queue)
		assert_int_equal(actmem_queue_destroy(queue), 0);
	queue = NULL;
	assert_int_equal(actmem_region_close(region), 0);
	fake_commands(NULL);
	assert_int_equal(actmem_close(am), 0);
	return driver_teardown(state);
}

static void will_answer(int result, uint64_t done)
{
	answers[answer_count].result = result;
	answers[answer_count++].done = done;
}

static int finish(void)
{
	struct actmem_completion completion;

	assert_int_equal(actmem_queue_wait(queue, &completion, 1, ACTMEM_WAIT_FOREVER), 1);
	assert_int_equal(completion.bytes, completion.result ? 0 : LENGTH);
	return completion.result;
}

static uint64_t resumed(void)
{
	struct actmem_queue_stats stats = { .size = sizeof(stats) };

	assert_int_equal(actmem_queue_get_stats(queue, &stats), 0);
	return stats.resumed_total;
}

static void test_goes_on(void **state)
{
	if (!queue)
		skip();
	answer_count = 0;
	will_answer(-EINTR, 0);
	will_answer(-ECANCELED, LENGTH / 4);
	will_answer(-EINTR, LENGTH / 2);
	will_answer(0, LENGTH);
	assert_int_equal(actmem_queue_populate(queue, region, 0, LENGTH, NULL), 0);
	assert_int_equal(finish(), 0);
	assert_int_equal(operation, ACTMEM_IOC_POPULATE);
	assert_int_equal(commands, 4);
	assert_int_equal(resumed(), 3);
	commands = 0;
	assert_int_equal(actmem_queue_discard(queue, region, 0, LENGTH, NULL), 0);
	assert_int_equal(finish(), 0);
	assert_int_equal(operation, ACTMEM_IOC_DISCARD);
	assert_int_equal(commands, 4);
}

static void test_gives_up(void **state)
{
	if (!queue)
		skip();
	answer_count = 0;
	will_answer(-EINTR, LENGTH / 4);
	assert_int_equal(actmem_queue_populate(queue, region, 0, LENGTH, NULL), 0);
	assert_int_equal(finish(), -EINTR);
	assert_in_range(commands, 100, 2000);
	/* Other errors are what they are. */
	answer_count = 0;
	will_answer(-EINTR, LENGTH / 4);
	will_answer(-EIO, LENGTH / 4);
	commands = 0;
	assert_int_equal(actmem_queue_populate(queue, region, 0, LENGTH, NULL), 0);
	assert_int_equal(finish(), -EIO);
	assert_int_equal(commands, 2);
}

static void test_asked_to_end(void **state)
{
	struct actmem_request request = { .size = sizeof(request) };

	if (!queue)
		skip();
	answer_count = 0;
	will_answer(1, 0);
	assert_int_equal(actmem_queue_populate(queue, region, 0, LENGTH, &request), 0);
	while (!commands)
		usleep(100);
	/* Nobody takes the region from under the command. */
	assert_int_equal(actmem_region_close(region), -EBUSY);
	assert_non_null(strstr(actmem_error(), "actmem_queue_wait()"));
	assert_int_equal(actmem_queue_cancel(queue, request.id), 0);
	assert_int_equal(finish(), -ECANCELED);
	assert_int_equal(commands, 1);
	assert_int_equal(resumed(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gives_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_asked_to_end, setup, teardown),
	};

	return cmocka_run_group_tests_name("queue_commands", tests, NULL, NULL);
}
