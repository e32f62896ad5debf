/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Several holds of a block, and what other threads may do to it while the store computes its
 * checksum without the lock.
 */
#include <errno.h>
#include <string.h>

#include "actmem_store.h"
#include "faults.h"

#define BYTES	100000

static const struct actmem_key key = { .name = 7 };
static struct actmem *am;
static struct actmem_store *store;

static int open_store(void **state)
{
	struct actmem_store_options store_options;

	ACTMEM_INIT(&store_options);
	store_options.flags = ACTMEM_STORE_CHECKSUM;
	return open_small(&am) || actmem_store_create(am, &store_options, &store);
}

static int close_store(void **state)
{
	return actmem_store_destroy(store) || actmem_close(am);
}

static void meddle_with_commit(void)
{
	const void *memory;
	void *own;

	assert_fails(actmem_store_drop(store, key), EBUSY, "block 7 is being committed");
	assert_fails(actmem_store_commit(store, key), ENOENT, "not reserved");
	assert_fails(actmem_store_hold(store, key, &memory, NULL,
				       ACTMEM_WAIT_FOREVER), ENOENT, "not committed");
	assert_fails(actmem_store_release(store, key), ENOENT, "not held");
	assert_fails(actmem_store_reserve(store, key, BYTES, &own,
					  ACTMEM_WAIT_FOREVER), EEXIST, "block 7");
	assert_fails(actmem_store_destroy(store), EBUSY, "1 blocks");
}

static void meddle_with_hold(void)
{
	const void *memory;

	assert_fails(actmem_store_drop(store, key), EBUSY, "block 7 is held");
	assert_fails(actmem_store_hold(store, key, &memory, NULL, 0), ETIMEDOUT,
		     "block 7 of 97.7 KiB is still being read for another thread");
	assert_fails(actmem_store_put_back(store, key), ENOENT, "not held");
	assert_fails(actmem_store_destroy(store), EBUSY, "1 blocks");
}

static void test_commit(void **state)
{
	const void *memory;
	uint64_t bytes;
	void *own;

	assert_int_equal(actmem_store_reserve(store, key, BYTES, &own, ACTMEM_WAIT_FOREVER), 0);
	memset(own, 7, BYTES);
	before_checksum(meddle_with_commit);
	assert_int_equal(actmem_store_commit(store, key), 0);
	before_checksum(meddle_with_hold);
	assert_int_equal(actmem_store_hold(store, key, &memory, &bytes, ACTMEM_WAIT_FOREVER), 0);
	assert_int_equal(bytes, BYTES);
	assert_ptr_equal(memory, own);
	assert_int_equal(actmem_store_release(store, key), 0);
	assert_fails(actmem_store_hold(store, key, &memory, NULL,
				       ACTMEM_WAIT_FOREVER), ENOENT, "not in the store");
}

static void *memory_of_hold(void)
{
	const void *memory = NULL;

	assert_int_equal(actmem_store_hold(store, key, &memory, NULL, ACTMEM_WAIT_FOREVER), 0);
	return (void *)(uintptr_t)memory;
}

static void put_filled(int content)
{
	void *own;

	assert_int_equal(actmem_store_reserve(store, key, BYTES, &own, ACTMEM_WAIT_FOREVER), 0);
	memset(own, content, BYTES);
	assert_int_equal(actmem_store_commit(store, key), 0);
}

/* A block that is released ends with its last hold, and nobody else gets one of it. */
static void test_several_holds(void **state)
{
	const void *memory;
	void *own;

	put_filled(7);
	own = memory_of_hold();
	assert_ptr_equal(memory_of_hold(), own);
	assert_ptr_equal(memory_of_hold(), own);
	assert_int_equal(actmem_store_put_back(store, key), 0);
	assert_fails(actmem_store_drop(store, key), EBUSY, "block 7 is held");
	assert_int_equal(actmem_store_release(store, key), 0);
	assert_fails(actmem_store_hold(store, key, &memory, NULL, 0), ENOENT, "was released");
	assert_fails(actmem_store_reserve(store, key, BYTES, &own, 0), EEXIST, "block 7");
	assert_int_equal(actmem_store_put_back(store, key), 0);
	assert_fails(actmem_store_put_back(store, key), ENOENT, "not in the store");
	/* And one that all put back stays. */
	put_filled(7);
	memory_of_hold();
	memory_of_hold();
	assert_int_equal(actmem_store_put_back(store, key), 0);
	assert_int_equal(actmem_store_put_back(store, key), 0);
	assert_fails(actmem_store_put_back(store, key), ENOENT, "not held");
	memory_of_hold();
	assert_int_equal(actmem_store_release(store, key), 0);
}

/* The first holder may end its hold while the second one compares the checksum. */
static void release_first(void)
{
	assert_int_equal(actmem_store_release(store, key), 0);
	assert_fails(actmem_store_release(store, key), ENOENT, "not held");
}

static void test_hold_during_release(void **state)
{
	put_filled(7);
	memory_of_hold();
	before_checksum(release_first);
	assert_int_equal(*(char *)memory_of_hold(), 7);
	assert_int_equal(actmem_store_put_back(store, key), 0);
	assert_fails(actmem_store_drop(store, key), ENOENT, "not in the store");
}

/* Each hold compares. One that fails ends no other. */
static void test_changed_while_held(void **state)
{
	const void *memory;
	char *own;

	put_filled(7);
	own = memory_of_hold();
	own[BYTES - 1] ^= 1;
	assert_fails(actmem_store_hold(store, key, &memory, NULL, 0), EBADMSG, "block 7 of");
	own[BYTES - 1] ^= 1;
	assert_ptr_equal(memory_of_hold(), own);
	assert_int_equal(actmem_store_release(store, key), 0);
	assert_int_equal(actmem_store_release(store, key), 0);
	/* What was committed without a checksum has none to compare. */
	assert_int_equal(actmem_store_set_checksum(store, 0), 0);
	put_filled(7);
	assert_int_equal(actmem_store_set_checksum(store, 1), 0);
	own = memory_of_hold();
	own[0] ^= 1;
	memory_of_hold();
	assert_int_equal(actmem_store_release(store, key), 0);
	assert_int_equal(actmem_store_release(store, key), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_commit, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_several_holds, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_hold_during_release, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_changed_while_held, open_store, close_store),
	};

	return cmocka_run_group_tests_name("commit", tests, NULL, NULL);
}
