/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What other threads may do to a block while it is checksummed, and the store's lock is
 * given back.
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
	assert_fails(actmem_store_hold(store, key, &memory, NULL,
				       ACTMEM_WAIT_FOREVER), EBUSY, "block 7 is held");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_commit, open_store, close_store),
	};

	return cmocka_run_group_tests_name("commit", tests, NULL, NULL);
}
