/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store is not ended while a thread has memory made ahead for it.
 */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "actmem_store.h"
#include "faults.h"

#define MIB		(1ULL << 20)
#define AHEAD		(60 * MIB)
#define PAUSE_US	50000
#define THREAD		"ahead"

static struct actmem *am;

static int setup(void **state)
{
	return open_small(&am);
}

static int teardown(void **state)
{
	fail_nothing();
	return actmem_close(am);
}

static void *grow(void *store)
{
	return actmem_store_grow(store, MIB, AHEAD) ? store : NULL;
}

/* Each region takes a while, so that there are more to come. */
static void test_store_stays(void **state)
{
	struct actmem_store_options options;
	struct actmem_store *store;
	pthread_t thread;
	void *failed;
	int error;

	ACTMEM_INIT(&options);
	options.grow_bytes = 2 * MIB;
	assert_int_equal(actmem_store_create(am, &options, &store), 0);
	slow_call("memfd_create", PAUSE_US);
	assert_int_equal(pthread_create(&thread, NULL, grow, store), 0);
	pthread_setname_np(thread, THREAD);
	while (!slow_calls_of(THREAD))
		usleep(1000);
	error = actmem_store_destroy(store);
	slow_call("", 0);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_int_equal(error, -EBUSY);
	assert_int_equal(actmem_store_destroy(store), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_store_stays, setup, teardown),
	};

	return cmocka_run_group_tests_name("grow_ahead", tests, NULL, NULL);
}
