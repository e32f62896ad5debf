/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Takes that never wait in the store: the eventfd tells when to try again, and the try returns the
 * error of a read that failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include "store_rig.h"

#define BLOCKS		12
#define TRIES		20
#define POLL_MS		20000

static int eventfd_of(struct rig *rig)
{
	int event = actmem_store_eventfd(rig->store);

	assert_true(event >= 0);
	assert_int_equal(actmem_store_eventfd(rig->store), event);
	assert_int_equal(fcntl(event, F_GETFD), FD_CLOEXEC);
	assert_true(fcntl(event, F_GETFL) & O_NONBLOCK);
	return event;
}

static bool is_readable(int event, int timeout_ms)
{
	struct pollfd watched = { .fd = event, .events = POLLIN };

	return poll(&watched, 1, timeout_ms) == 1 && watched.revents == POLLIN;
}

static void drain(int event)
{
	uint64_t count;

	assert_true(read(event, &count, sizeof(count)) == sizeof(count) || errno == EAGAIN);
}

/* Takes a block as the header says. */
static int take_by_poll(struct rig *rig, uint64_t name, int event)
{
	struct actmem_key key = key_of(name);
	const void *memory;
	unsigned int tries = 0;
	int error;

	assert_int_equal(actmem_store_prefetch(rig->store, key), 0);
	while ((error = actmem_store_hold(rig->store, key, &memory, NULL, 0)) == -ETIMEDOUT) {
		assert_true(++tries < TRIES);
		assert_true(is_readable(event, POLL_MS));
		drain(event);
	}
	if (error)
		return error;
	assert_int_equal(*(const unsigned char *)memory, name + 1);
	return actmem_store_put_back(rig->store, key) ?: take(rig, name);
}

static void test_takes_by_poll(void **state)
{
	uint64_t name;
	int event;
	RIG(rig);

	event = eventfd_of(&rig);
	put_all(&rig, BLOCKS);
	settle(&rig);
	assert_false(is_readable(event, 0));
	for (name = 0; name < BLOCKS; name++)
		assert_int_equal(take_by_poll(&rig, name, event), 0);
	assert_true(stats_of(&rig).filled_bytes_total >= BLOCKS * BLOCK - BUDGET);
}

/* A program that never waits gets the error once, and may then try again. */
static void test_failed_read(void **state)
{
	int error = 0, event;
	uint64_t name;
	RIG(rig);

	event = eventfd_of(&rig);
	put_all(&rig, BLOCKS);
	settle(&rig);
	fail_transfers(1, 1000, -EIO);
	/* Blocks in memory come first, and are taken. */
	for (name = 0; name < BLOCKS && !error; name++)
		error = take_by_poll(&rig, name, event);
	name--;
	assert_int_equal(error, -EIO);
	assert_non_null(strstr(actmem_error(), "cannot be read again from "));
	assert_non_null(strstr(actmem_error(), FOLDER));
	settle(&rig);
	fail_nothing();
	assert_int_equal(take_by_poll(&rig, name, event), 0);
}

static void test_no_descriptor(void **state)
{
	RIG(rig);

	fail_call("eventfd", 1, EMFILE);
	assert_fails(actmem_store_eventfd(rig.store), EMFILE, "an eventfd for the store");
	eventfd_of(&rig);
	assert_int_equal(actmem_store_eventfd(NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_takes_by_poll),
		cmocka_unit_test(test_failed_read),
		cmocka_unit_test(test_no_descriptor),
	};

	return cmocka_run_group_tests_name("store_eventfd", tests, NULL, NULL);
}
