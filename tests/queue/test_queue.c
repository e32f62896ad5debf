/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The transfer queue when system calls and transfers fail, by both engines: short
 * ones are resumed, passing errors repeated, others told with file, offset and
 * block; io_uring refused; and every error path unwinds.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "base/clock.h"
#include "faults.h"

#define LENGTH		(256ULL << 10)
#define BLOCK		(32ULL << 10)
#define BLOCKS		(LENGTH / BLOCK)

static enum actmem_engine uring = ACTMEM_ENGINE_URING, workers = ACTMEM_ENGINE_WORKERS;

struct rig {
	struct actmem *am;
	struct actmem_queue *queue;
	struct actmem_region *region;
	struct actmem_file *file;
	char *memory;
	char path[64];
	struct holdings before;
};

static int make_queue(struct actmem *am, enum actmem_engine engine, struct actmem_queue **queue)
{
	struct actmem_queue_options options = {
		.size = sizeof(options), .engine = engine, .block_bytes = BLOCK, .depth = 1,
		.workers = 1,
	};

	return actmem_queue_create(am, &options, queue);
}

static int make_file(struct rig *rig)
{
	snprintf(rig->path, sizeof(rig->path), "build/tests/queue-%d", getpid());
	return open_file_at(rig->queue, rig->path, ACTMEM_FILE_CREATE, LENGTH, &rig->file);
}

/* Stops at the first failure; tear_down() undoes what was done. */
static int set_up(struct rig *rig, enum actmem_engine engine)
{
	void *memory;
	int error;

	*rig = (struct rig){ .before = held_now() };
	error = open_memfd(&rig->am, ACTMEM_PAGES_4K, 0);
	if (!error)
		error = create_region(rig->am, LENGTH, 0, &rig->region);
	if (!error)
		error = actmem_region_map(rig->region, &memory);
	rig->memory = error ? NULL : memory;
	if (!error)
		error = make_queue(rig->am, engine, &rig->queue);
	if (!error)
		error = actmem_queue_attach(rig->queue, rig->region, 0);
	return error ? error : make_file(rig);
}

/* Where io_uring is refused for good there is nothing of it to be tested. */
static void skip_without(const enum actmem_engine *engine)
{
	struct actmem_queue *queue;
	struct actmem *am;
	int error;

	assert_int_equal(open_memfd(&am, ACTMEM_PAGES_4K, 0), 0);
	error = make_queue(am, *engine, &queue);
	if (!error)
		assert_int_equal(actmem_queue_destroy(queue), 0);
	assert_int_equal(actmem_close(am), 0);
	if (*engine == ACTMEM_ENGINE_URING && (error == -EPERM || error == -ENOSYS))
		skip();
	assert_int_equal(error, 0);
}

static void set_up_or_skip(struct rig *rig, const enum actmem_engine *engine)
{
	skip_without(engine);
	assert_int_equal(set_up(rig, *engine), 0);
}

static void tear_down(struct rig *rig)
{
	fail_nothing();
	if (rig->file) {
		assert_int_equal(actmem_file_close(rig->file), 0);
		assert_int_equal(unlink(rig->path), 0);
	}
	/* A file that could not be opened was not left there either. */
	assert_int_equal(access(rig->path, F_OK), -1);
	if (rig->queue) {
		actmem_queue_detach(rig->queue, rig->region);
		assert_int_equal(actmem_queue_destroy(rig->queue), 0);
	}
	if (rig->region)
		assert_int_equal(actmem_region_close(rig->region), 0);
	if (rig->am)
		assert_int_equal(actmem_close(rig->am), 0);
	assert_same_held(rig->before);
}

static int finish(struct rig *rig, int error)
{
	struct actmem_completion completion;

	if (error)
		return error;
	assert_int_equal(actmem_queue_wait(rig->queue, &completion, 1, ACTMEM_WAIT_FOREVER), 1);
	assert_int_equal(!completion.result, completion.bytes == LENGTH);
	assert_int_equal(!completion.result, !*actmem_error());
	return completion.result;
}

static int spill(struct rig *rig)
{
	return finish(rig,
		      actmem_queue_spill(rig->queue, rig->file, 0, rig->region, 0, LENGTH, NULL));
}

static int fill(struct rig *rig)
{
	return finish(rig,
		      actmem_queue_fill(rig->queue, rig->file, 0, rig->region, 0, LENGTH, NULL));
}

static void write_pattern(struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < LENGTH; i++)
		rig->memory[i] = (char)(i / 7 + i / 4096);
}

static void assert_pattern(const struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < LENGTH; i++)
		assert_int_equal(rig->memory[i], (char)(i / 7 + i / 4096));
}

static uint64_t resumed(struct rig *rig)
{
	struct actmem_queue_stats stats = { .size = sizeof(stats) };

	assert_int_equal(actmem_queue_get_stats(rig->queue, &stats), 0);
	return stats.resumed_total;
}

static void there_and_back(struct rig *rig)
{
	write_pattern(rig);
	assert_int_equal(spill(rig), 0);
	memset(rig->memory, 0, LENGTH);
	assert_int_equal(fill(rig), 0);
	assert_pattern(rig);
}

static void test_resumes(void **state)
{
	struct rig rig;

	set_up_or_skip(&rig, *state);
	there_and_back(&rig);
	assert_int_equal(resumed(&rig), 0);
	shorten_transfers(true);
	there_and_back(&rig);
	/* 32 KiB are done as 16, 8, 4 and 4. */
	assert_int_equal(resumed(&rig), 2 * 3 * BLOCKS);
	shorten_transfers(false);
	fail_transfers(2, 5, -EAGAIN);
	there_and_back(&rig);
	fail_transfers(2, 5, -EINTR);
	there_and_back(&rig);
	/* As when the task that a ring belongs to ends; nobody asked for it here. */
	fail_transfers(2, 1, -ECANCELED);
	there_and_back(&rig);
	assert_int_equal(resumed(&rig), 2 * 3 * BLOCKS + 11);
	/* Not at a multiple of what direct I/O needs: it goes on before that. */
	fail_transfers(2, 1, BLOCK / 2 + 100);
	there_and_back(&rig);
	assert_int_equal(resumed(&rig), 2 * 3 * BLOCKS + 12);
	tear_down(&rig);
}

static void test_tells(void **state)
{
	char place[128];
	struct rig rig;

	set_up_or_skip(&rig, *state);
	snprintf(place, sizeof(place), "block 2, %llu bytes at %llu of '%s'", BLOCK, 2 * BLOCK,
		 rig.path);
	fail_transfers(3, 1, -EIO);
	assert_fails(fill(&rig), EIO, place);
	assert_non_null(strstr(actmem_error(), "fill: "));
	fail_transfers(3, 1, -ENOSPC);
	assert_fails(spill(&rig), ENOSPC, place);
	assert_non_null(strstr(actmem_error(), "free space there"));
	fail_transfers(3, 1, 0);
	assert_fails(fill(&rig), ENODATA, place);
	fail_transfers(3, 1, 0);
	assert_fails(spill(&rig), EIO, place);
	/* What never passes is an error in the end. */
	fail_transfers(1, UINT32_MAX, -EAGAIN);
	assert_fails(fill(&rig), EAGAIN, "block 0");
	fail_transfers(0, 0, 0);
	there_and_back(&rig);
	tear_down(&rig);
}

/* All that a program does. */
static int run(void *context)
{
	const enum actmem_engine *engine = context;
	struct rig rig;
	int error = set_up(&rig, *engine);

	if (!error)
		error = spill(&rig);
	if (!error)
		error = fill(&rig);
	tear_down(&rig);
	return error;
}

static void test_sweep(void **state)
{
	skip_without(*state);
	fail_each(run, *state, 20);
}

static void test_refused(void **state)
{
	/* Some security modules say EACCES. ENOMEM: RLIMIT_MEMLOCK leaves no ring. */
	static const int errors[] = { EPERM, EACCES, ENOMEM };
	struct actmem_queue *queue;
	struct actmem *am;
	unsigned int i;

	assert_int_equal(open_memfd(&am, ACTMEM_PAGES_4K, 0), 0);
	for (i = 0; i < 3; i++) {
		fail_call("io_uring_setup", 1, errors[i]);
		assert_int_equal(make_queue(am, ACTMEM_ENGINE_AUTO, &queue), 0);
		assert_non_null(strstr(actmem_queue_describe(queue),
				       "workers: io_uring is unavailable"));
		assert_int_equal(actmem_queue_destroy(queue), 0);
	}
	fail_call("io_uring_setup", 1, EINVAL);
	assert_fails(make_queue(am, ACTMEM_ENGINE_URING, &queue), ENOSYS, "older than Linux 6.1");
	fail_call("io_uring_setup", 1, ENOMEM);
	assert_fails(make_queue(am, ACTMEM_ENGINE_URING, &queue), ENOMEM, "io_uring_setup");
	fail_call("io_uring_setup", 1, EMFILE);
	assert_fails(make_queue(am, ACTMEM_ENGINE_AUTO, &queue), EMFILE, "io_uring_setup");
	fail_call("register_files_sparse", 1, EMFILE);
	assert_fails(make_queue(am, ACTMEM_ENGINE_AUTO, &queue), EMFILE, "RLIMIT_NOFILE");
	fail_nothing();
	assert_int_equal(actmem_close(am), 0);
}

static void test_registration(void **state)
{
	struct rig rig;

	set_up_or_skip(&rig, &uring);
	/* It is not first registered once more. */
	fail_call("register_buffer", 1, ENOMEM);
	assert_fails(actmem_queue_attach(rig.queue, rig.region, 0), EEXIST, "is already attached");
	assert_int_equal(actmem_queue_detach(rig.queue, rig.region), 0);
	fail_call("register_buffer", 1, ENOMEM);
	assert_fails(actmem_queue_attach(rig.queue, rig.region, 0), ENOMEM, "RLIMIT_MEMLOCK");
	assert_null(strstr(actmem_queue_describe(rig.queue), "without registered"));
	fail_call("register_buffer", 1, EOPNOTSUPP);
	assert_int_equal(actmem_queue_attach(rig.queue, rig.region, 0), 0);
	assert_non_null(strstr(actmem_queue_describe(rig.queue), "without registered"));
	there_and_back(&rig);
	tear_down(&rig);
}

/* False: the eventfd could not be read, however long one would wait. */
static bool is_told(int event)
{
	struct pollfd poll_event = { .fd = event, .events = POLLIN };
	uint64_t times;

	return poll(&poll_event, 1, 30000) == 1 && read(event, &times, sizeof(times)) > 0;
}

static uint64_t fill_by(struct rig *rig, uint64_t cookie, uint64_t deadline)
{
	struct actmem_request request = {
		.size = sizeof(request), .cookie = cookie, .deadline_ns = deadline,
	};

	assert_int_equal(actmem_queue_fill(rig->queue, rig->file, 0, rig->region, 0, BLOCK,
					   &request), 0);
	return request.id;
}

static int result_of(struct rig *rig, uint64_t cookie)
{
	struct actmem_completion completion;

	assert_int_equal(actmem_queue_wait(rig->queue, &completion, 1, 0), 1);
	assert_int_equal(completion.cookie, cookie);
	return completion.result;
}

/* The only worker is in a transfer that does not end. */
static void test_told_beside_a_hang(void **state)
{
	bool by_deadline, by_cancel;
	struct rig rig;
	int event;

	assert_int_equal(set_up(&rig, ACTMEM_ENGINE_WORKERS), 0);
	fail_call("pthread_create", 1, EAGAIN);
	assert_fails(actmem_queue_eventfd(rig.queue), EAGAIN, "a thread");
	fail_call("eventfd", 1, EMFILE);
	assert_fails(actmem_queue_eventfd(rig.queue), EMFILE, "an eventfd");
	fail_nothing();
	event = actmem_queue_eventfd(rig.queue);
	assert_true(event >= 0);
	hold_transfers(true);
	fill_by(&rig, 0, 0);
	fill_by(&rig, 1, clock_ns() + 20000000);
	by_deadline = is_told(event);
	assert_int_equal(result_of(&rig, 1), -ETIME);
	assert_int_equal(actmem_queue_cancel(rig.queue, fill_by(&rig, 2, 0)), 0);
	by_cancel = is_told(event);
	assert_int_equal(result_of(&rig, 2), -ECANCELED);
	hold_transfers(false);
	assert_true(by_deadline && by_cancel);
	assert_true(is_told(event));
	assert_int_equal(result_of(&rig, 0), 0);
	tear_down(&rig);
}

static atomic_int waiter;

static void *wait_for_one(void *queue)
{
	static struct actmem_completion completion;

	waiter = gettid();
	assert_int_equal(actmem_queue_wait(queue, &completion, 1, ACTMEM_WAIT_FOREVER), 1);
	return &completion;
}

static bool is_asleep(int thread)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "re");
	if (!file || fscanf(file, "%*d %*s %c", &state) != 1)
		state = 0;
	if (file)
		fclose(file);
	return state == 'S';
}

/* A thread that waits already, with nothing to wake for, learns of a deadline all the same. */
static void test_later_deadline(void **state)
{
	struct actmem_completion *completion;
	struct timespec limit;
	struct rig rig;
	pthread_t thread;
	int error;

	assert_int_equal(set_up(&rig, ACTMEM_ENGINE_WORKERS), 0);
	hold_transfers(true);
	fill_by(&rig, 0, 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_one, rig.queue), 0);
	while (!is_asleep(waiter))
		usleep(1000);
	clock_gettime(CLOCK_MONOTONIC, &limit);
	fill_by(&rig, 1, clock_ns() + 20000000);
	limit.tv_sec += 30;
	error = pthread_clockjoin_np(thread, (void **)&completion, CLOCK_MONOTONIC, &limit);
	hold_transfers(false);
	assert_int_equal(error, 0);
	assert_int_equal(completion->cookie, 1);
	assert_int_equal(completion->result, -ETIME);
	completion = wait_for_one(rig.queue);
	assert_int_equal(completion->cookie, 0);
	assert_int_equal(completion->result, 0);
	tear_down(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(test_resumes, &uring),
		cmocka_unit_test_prestate(test_resumes, &workers),
		cmocka_unit_test_prestate(test_tells, &uring),
		cmocka_unit_test_prestate(test_tells, &workers),
		cmocka_unit_test_prestate(test_sweep, &uring),
		cmocka_unit_test_prestate(test_sweep, &workers),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_registration),
		cmocka_unit_test(test_told_beside_a_hang),
		cmocka_unit_test(test_later_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
