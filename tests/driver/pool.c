// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Warm pools: what they hold, who gets it and what comes back. */
#include <pthread.h>

#include "frame_test.h"
#include "pool_test.h"

/* Finds zeros only, and leaves a pattern. */
static bool was_zero(int fd, size_t pages)
{
	size_t length = pages * PAGE_BYTES;
	char *memory = map(fd, pages);
	bool zero;

	if (memory == MAP_FAILED)
		return false;
	zero = !memory[0] && !memcmp(memory, memory + 1, length - 1);
	memset(memory, 0xa5, length);
	munmap(memory, length);
	return zero;
}

TEST_F(pool, each_node_is_filled)
{
	int node;

	/* The last one may have no processors. */
	for (node = 0; node_memory(node, "MemTotal"); node++) {
		size_t unused = unused_memory(node);

		ASSERT_EQ(0, set_pool(node, FULL));
		EXPECT_EQ((long)(FULL * PAGE_BYTES), get(node, "pool_bytes"));
		wait_ready(node, FULL);
		EXPECT_GT(unused - FULL / 2 * PAGE_BYTES, unused_memory(node));
	}
	EXPECT_EQ((long)(node * FULL * PAGE_BYTES), node_sum("pool_free_bytes"));
	EXPECT_EQ(0, node_sum("region_bytes"));
}

TEST_F(pool, a_region_takes_from_it_and_gives_back)
{
	int fd, round;

	fill_pool(NODE, FULL);
	for (round = 0; round < 3; round++) {
		fd = must(create_on(self->device, NODE, SOME));
		EXPECT_EQ(FULL - SOME, ready(NODE));
		EXPECT_EQ(SOME, lent(NODE));
		EXPECT_EQ((long)(SOME * PAGE_BYTES), get(NODE, "region_bytes"));
		EXPECT_TRUE(was_zero(fd, SOME));
		close(fd);
		EXPECT_EQ(0, lent(NODE));
		EXPECT_EQ(0, get(NODE, "region_bytes"));
		wait_ready(NODE, FULL);
	}
}

#define SPLIT	"/sys/kernel/debug/split_huge_pages"

/*
 * The administrator lets the kernel split huge pages, in this process, in the file, and everywhere.
 * The kernel does not split those of regions: they belong to the driver.
 */
TEST_F(pool, the_kernel_does_not_split_pages)
{
	long tainted = number_in("/proc/sys/kernel/tainted");
	char process[64], file[64], *memory;
	size_t i;
	int fd;

	fill_pool(NODE, 1);
	/* The first page is from the pool, the second from the page allocator. */
	fd = must(create_on(self->device, NODE, 2));
	ASSERT_EQ(1, lent(NODE));
	memory = mapped(map(fd, 2));
	memset(memory, 0x5a, 2 * PAGE_BYTES);
	snprintf(process, sizeof(process), "%d,%p,%p", getpid(), memory, memory + 2 * PAGE_BYTES);
	snprintf(file, sizeof(file), "/proc/%d/fd/%d,0x0,%#zx", getpid(), fd,
		 2 * PAGE_BYTES / SMALL);
	EXPECT_EQ(0, put(SPLIT, process));
	EXPECT_EQ(0, put(SPLIT, file));
	EXPECT_EQ(0, put(SPLIT, "1"));
	EXPECT_EQ(tainted, number_in("/proc/sys/kernel/tainted"));
	EXPECT_EQ(2 * PAGE_BYTES, pmd_mapped(memory, 2 * PAGE_BYTES));
	for (i = 0; i < 2; i++) {
		char *page = memory + i * PAGE_BYTES;

		EXPECT_TRUE(frame_flags(page) & 1ULL << KPF_COMPOUND_HEAD);
		EXPECT_TRUE(frame_flags(page + PAGE_BYTES - SMALL) & 1ULL << KPF_COMPOUND_TAIL);
		EXPECT_EQ(frame_of(page) + PAGE_BYTES / SMALL - 1,
			  frame_of(page + PAGE_BYTES - SMALL));
	}
	for (i = 0; i < 2 * PAGE_BYTES; i++)
		ASSERT_EQ(0x5a, memory[i]);
	munmap(memory, 2 * PAGE_BYTES);
	close(fd);
	EXPECT_EQ(0, regions());
}

TEST_F(pool, what_was_written_is_gone)
{
	int fd, round;

	fill_pool(NODE, FULL);
	for (round = 0; round < 3; round++) {
		/* More than it holds; and again before all are ready. */
		fd = must(create_on(self->device, NODE, 2 * FULL));
		EXPECT_TRUE(was_zero(fd, 2 * FULL));
		close(fd);
		fd = must(create_on(self->device, NODE, FULL));
		EXPECT_TRUE(was_zero(fd, FULL));
		close(fd);
	}
	wait_ready(NODE, FULL);
}

/* What it has lent is still its own, so that it gets no other pages for it. */
TEST_F(pool, what_is_lent_counts)
{
	int fd, more;

	fill_pool(NODE, FULL);
	fd = must(create_on(self->device, NODE, FULL + SOME));
	EXPECT_EQ(FULL, lent(NODE));
	/* As long as a fill would take, and the worker is awake. */
	ASSERT_EQ(0, set_pool(NODE, FULL));
	more = must(create_on(self->device, NODE, SOME));
	usleep(200000);
	EXPECT_EQ(0, ready(NODE));
	EXPECT_EQ(FULL, lent(NODE));
	EXPECT_EQ((long)((FULL + 2 * SOME) * PAGE_BYTES), get(NODE, "region_bytes"));
	/* What was not taken from it does not come to it. */
	close(more);
	EXPECT_EQ(FULL, lent(NODE));
	EXPECT_EQ(0, ready(NODE));
	close(fd);
	EXPECT_EQ(0, lent(NODE));
	wait_ready(NODE, FULL);
}

TEST_F(pool, shrinking_while_it_has_lent)
{
	int fds[4], i;

	fill_pool(NODE, FULL);
	for (i = 0; i < 4; i++) {
		fds[i] = must(create_on(self->device, NODE, FULL / 4));
	}
	close(fds[0]);
	EXPECT_EQ(FULL / 4 * 3, lent(NODE));
	wait_ready(NODE, FULL / 4);
	/* Held pages go at once, lent ones when they return, but for the rest. */
	ASSERT_EQ(0, set_pool(NODE, FULL / 2));
	EXPECT_EQ(0, ready(NODE));
	EXPECT_EQ(FULL / 4 * 3, lent(NODE));
	close(fds[1]);
	EXPECT_EQ(FULL / 2, lent(NODE));
	close(fds[2]);
	EXPECT_EQ(FULL / 4, lent(NODE));
	wait_ready(NODE, FULL / 4);
	/* Grown, it is filled by what it lacks. */
	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL / 4 * 3);
	ASSERT_EQ(0, set_pool(NODE, 0));
	EXPECT_EQ(0, ready(NODE));
	EXPECT_EQ(FULL / 4, lent(NODE));
	close(fds[3]);
	EXPECT_EQ(0, ready(NODE));
	EXPECT_EQ(0, lent(NODE));
}

TEST_F(pool, a_page_that_is_pinned_does_not_come_back)
{
	unsigned char bytes[4096];
	int fd, next, ends[2];
	size_t i;
	char *memory;

	fill_pool(NODE, FULL);
	fd = must(create_on(self->device, NODE, SOME));
	memory = mapped(map(fd, SOME));
	memset(memory, 0x5a, SOME * PAGE_BYTES);
	ASSERT_EQ(0, hold(memory + PAGE_BYTES, ends));
	munmap(memory, SOME * PAGE_BYTES);
	close(fd);
	wait_ready(NODE, FULL - 1);
	EXPECT_EQ((long)PAGE_BYTES, get(NODE, "lingering_bytes"));
	EXPECT_EQ(1, lent(NODE));

	for (i = 0; i < 4; i++) {
		next = must(create_on(self->device, NODE, FULL));
		EXPECT_TRUE(was_zero(next, FULL));
		close(next);
	}
	ASSERT_EQ(4096, read(ends[0], bytes, sizeof(bytes)));
	for (i = 0; i < sizeof(bytes); i++)
		ASSERT_EQ(0x5a, bytes[i]);
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, get(NODE, "lingering_bytes"));
	wait_ready(NODE, FULL);
	let_go(ends);
}

TEST_F(pool, shrinking_frees)
{
	size_t unused;

	fill_pool(NODE, FULL);
	unused = unused_memory(NODE);
	ASSERT_EQ(0, set_pool(NODE, 5));
	EXPECT_EQ(5, ready(NODE));
	ASSERT_EQ(0, set_pool(NODE, 0));
	EXPECT_EQ(0, ready(NODE));
	EXPECT_LT(unused + FULL / 2 * PAGE_BYTES, unused_memory(NODE));
	/* With nothing to hold, nothing is held. */
	close(create_on(self->device, NODE, SOME));
	EXPECT_EQ(0, ready(NODE));
}

static int limited(int device)
{
	struct actmem_ioctl_create arg = region_on(SOME + 1, ACTMEM_POLICY_BIND, 1 << NODE);

	CHECK(create(device, &arg) == -ENOMEM && arg.why.reason == ACTMEM_WHY_MEMLOCK);
	CHECK(ready(NODE) == FULL);
	CHECK(create_on(device, NODE, SOME) >= 0);
	CHECK(ready(NODE) == FULL - SOME);
	return 0;
}

TEST_F(pool, locked_memory_is_limited_as_ever)
{
	fill_pool(NODE, FULL);
	ASSERT_EQ(0, set_memlock(SOME * PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, limited, self->device));
	/* What its end gave back. */
	wait_ready(NODE, FULL);
}

static volatile bool stop;

/* Returns how often it found something that was not zero, or no memory. */
static void *churn(void *device)
{
	long wrong = 0, round;

	for (round = 1; !stop || round < 10; round++) {
		size_t pages = 1 + round % 7;
		int fd = create_on((intptr_t)device, NODE, pages);

		if (fd < 0 || !was_zero(fd, pages))
			wrong++;
		if (fd >= 0)
			close(fd);
	}
	return (void *)wrong;
}

TEST_F(pool, regions_come_and_go_while_it_changes)
{
	static const size_t sizes[] = { FULL, 0, 3, FULL / 2, 0, 1, FULL };
	pthread_t threads[4];
	void *wrong;
	size_t i;

	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, churn,
					    (void *)(intptr_t)self->device));
	for (i = 0; i < 42; i++) {
		EXPECT_EQ(0, set_pool(NODE, sizes[i % 7]));
		if (i % 5 == 0)
			EXPECT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
		usleep(50000);
	}
	stop = true;
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], &wrong));
		EXPECT_EQ(NULL, wrong);
	}
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, lent(NODE));
	fill_pool(NODE, FULL);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
