// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The settings of warm pools. */
#include "pool_test.h"

#define WORKQUEUE	"/sys/devices/virtual/workqueue/actmem"

static int write_as_user(int device)
{
	CHECK(set_pool(NODE, 1) == -EACCES);
	CHECK(ready(NODE) == 0);
	return 0;
}

TEST_F(pool, bad_settings)
{
	static const char *const bad[] = {
		"1", "2097151", "2097153", "-2097152", "3M", "2MB", "2M 2M", "abc", "\n", " ",
		"M", "2097152 2097152", "1e6", "2097152.0", "max",
	};
	size_t most = node_memory(NODE, "MemTotal") / PAGE_BYTES * PAGE_BYTES;
	size_t i;

	ASSERT_EQ(0, set_pool(NODE, 3));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		EXPECT_EQ(-EINVAL, set_text(NODE, "pool_bytes", bad[i])) {
			TH_LOG("bad[%zu]", i);
		}
	EXPECT_EQ(-ERANGE, set(NODE, "pool_bytes", most + PAGE_BYTES));
	EXPECT_EQ(-ERANGE, set_text(NODE, "pool_bytes", "18446744073707454464"));
	EXPECT_EQ(-ERANGE, set_text(NODE, "pool_bytes", "15E"));
	EXPECT_EQ((long)(3 * PAGE_BYTES), get(NODE, "pool_bytes"));
	EXPECT_EQ(-EACCES, set_text(NODE, "pool_free_bytes", "0"));
	EXPECT_EQ(-EACCES, set_text(NODE, "pool_lent_bytes", "0"));
	wait_ready(NODE, 3);
	ASSERT_EQ(0, set_text(NODE, "pool_bytes", "4M\n"));
	EXPECT_EQ((long)(2 * PAGE_BYTES), get(NODE, "pool_bytes"));
	ASSERT_EQ(0, set_pool(NODE, 0));
	EXPECT_EQ(0, as_user(USER, write_as_user, self->device));
}

/* Which CPUs zero its pages, and at which priority, is the administrator's business. */
TEST_F(pool, its_workqueue_has_settings)
{
	ASSERT_EQ(0, put(WORKQUEUE "/cpumask", "1"));
	ASSERT_EQ(0, put(WORKQUEUE "/nice", "19"));
	EXPECT_EQ(19, number_in(WORKQUEUE "/nice"));
	fill_pool(NODE, FULL);
}

TEST_F(pool, unloading_frees_it)
{
	size_t unused = unused_memory(NODE);

	fill_pool(NODE, FULL);
	close(self->device);
	EXPECT_EQ(0, unload_module("actmem"));
	EXPECT_LT(unused - FULL / 2 * PAGE_BYTES, unused_memory(NODE));
	ASSERT_EQ(0, load_module(MODULE));
	EXPECT_EQ(0, node_sum("pool_bytes"));
	self->device = open_device();
}

TEST_F(pool, unloading_while_it_is_filled)
{
	int i;

	close(self->device);
	for (i = 0; i < 5; i++) {
		EXPECT_EQ(0, set_pool(NODE, 2 * FULL));
		usleep(i * 5000);
		ASSERT_EQ(0, unload_module("actmem"));
		ASSERT_EQ(0, load_module(MODULE));
	}
	self->device = open_device();
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
