// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The settings of warm pools, in sysfs and as the module's parameter. */
#include "pool_test.h"

#define MODULE	"/vm/modules/actmem.ko"

static int write_as_user(int device)
{
	CHECK(set_pool(NODE, 1) == -EACCES);
	CHECK(set(NODE, "pool_min_bytes", PAGE_BYTES) == -EACCES);
	CHECK(ready(NODE) == 0);
	return 0;
}

TEST_F(pool, bad_settings)
{
	static const char *const names[] = { "pool_bytes", "pool_min_bytes" };
	static const char *const bad[] = {
		"1", "2097151", "2097153", "-2097152", "2M", "abc", "\n", " ", "0x200000",
		"2097152 2097152", "1e6", "2097152.0",
	};
	size_t most = node_memory(NODE, "MemTotal") / PAGE_BYTES * PAGE_BYTES;
	size_t i, j;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, set(NODE, names[i], 3 * PAGE_BYTES));
		for (j = 0; j < sizeof(bad) / sizeof(bad[0]); j++)
			EXPECT_EQ(-EINVAL, set_text(NODE, names[i], bad[j])) {
				TH_LOG("bad[%zu] to names[%zu]", j, i);
			}
		EXPECT_EQ(-ERANGE, set(NODE, names[i], most + PAGE_BYTES));
		EXPECT_EQ(-ERANGE, set_text(NODE, names[i], "18446744073707454464"));
		EXPECT_EQ(-ERANGE, set_text(NODE, names[i], "18446744073709551616"));
		EXPECT_EQ((long)(3 * PAGE_BYTES), get(NODE, names[i]));
	}
	EXPECT_EQ(-EACCES, set_text(NODE, "pool_free_bytes", "0"));
	EXPECT_EQ(-EACCES, set_text(NODE, "pool_lent_bytes", "0"));
	wait_ready(NODE, 3);
	/* As large as may be: it is filled as far as the node has memory. */
	EXPECT_EQ(0, set(NODE, "pool_min_bytes", most));
	EXPECT_EQ(0, set(NODE, "pool_min_bytes", 0));
	ASSERT_EQ(0, set_pool(NODE, 0));
	EXPECT_EQ(0, as_user(USER, write_as_user, self->device));
}

static int load(const char *parameters)
{
	int fd = open(MODULE, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 || syscall(SYS_finit_module, fd, parameters, 0) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

static int unload(void)
{
	return syscall(SYS_delete_module, "actmem", O_NONBLOCK) ? -errno : 0;
}

TEST_F(pool, the_parameter_of_the_module)
{
	static const struct {
		const char *parameters;
		int err;
	} bad[] = {
		{ "pool=", -EINVAL },
		{ "pool=64M", -EINVAL },
		{ "pool=0:", -EINVAL },
		{ "pool=:64M", -EINVAL },
		{ "pool=0:64M,", -EINVAL },
		{ "pool=0:64M;1:64M", -EINVAL },
		{ "pool=0:64Q", -EINVAL },
		{ "pool=0:64MM", -EINVAL },
		{ "pool=0:+64M", -EINVAL },
		{ "pool=-1:64M", -EINVAL },
		{ "pool=0x0:64M", -EINVAL },
		{ "pool=0:3M", -EINVAL },
		{ "pool=0:16777217T", -EINVAL },
		{ "pool=0:64M,0:64M", -EINVAL },
		{ "pool=0:64M,99:64M", -ENODEV },
		{ "pool=99999999999:64M", -EINVAL },
		{ "pool=0:64M,1:1T", -ERANGE },
	};
	size_t unused, i;

	close(self->device);
	unused = unused_memory(NODE);
	ASSERT_EQ(0, unload());
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int err = load(bad[i].parameters);

		EXPECT_EQ(bad[i].err, err) {
			TH_LOG("bad[%zu]", i);
		}
		if (!err)
			unload();
	}
	EXPECT_EQ(0, load("pool=1:64M,0:4096K"));
	wait_ready(1, 32);
	wait_ready(0, 2);
	/* With all that it holds. */
	EXPECT_EQ(0, unload());
	EXPECT_LT(unused - FULL / 2 * PAGE_BYTES, unused_memory(NODE));
	ASSERT_EQ(0, load(""));
	EXPECT_EQ(0, node_sum("pool_bytes"));
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
}

TEST_F(pool, unloading_while_it_is_filled)
{
	int i;

	close(self->device);
	for (i = 0; i < 5; i++) {
		EXPECT_EQ(0, set_pool(NODE, 2 * FULL));
		usleep(i * 5000);
		ASSERT_EQ(0, unload());
		ASSERT_EQ(0, load(""));
	}
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
