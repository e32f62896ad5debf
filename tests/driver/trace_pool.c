// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The tracepoints of pools: as they are filled, used, emptied, and find nothing. */
#include "trace_fixture.h"

static int set_pool(size_t pages)
{
	return put(SYSFS "/node1/pool_bytes", text("%zu", pages * PAGE_BYTES));
}

static void wait_ready(size_t pages)
{
	while (number_in(SYSFS "/node%d/pool_free_bytes", NODE) != (long)(pages * PAGE_BYTES))
		usleep(10000);
}

/* Ends by the harness's time limit if there are not so many. */
static void wait_for_events(const char *name, int wanted)
{
	do {
		usleep(10000);
		read_events();
	} while (count(name) < wanted);
}

TEST_F(trace, a_pool_is_filled_used_and_emptied)
{
	struct actmem_ioctl_create arg = region_of(PAGES + 1);
	int i, fd;

	ASSERT_EQ(0, set_pool(PAGES));
	/* A page is ready a moment before that is told. */
	wait_for_events("pool_fill", PAGES);
	ASSERT_EQ(0, put(EVENTS "/enable", "0"));
	read_events();
	for (i = 1; i <= PAGES; i++)
		EXPECT_EVENT("pool_fill", "node=%d ready=%zu target=%zu latency_ns=N", NODE,
			     i * PAGE_BYTES, PAGES * PAGE_BYTES);
	EXPECT_EQ(PAGES, count("pool_fill"));
	EXPECT_EQ(PAGES, count("zero"));
	next_event = 0;
	EXPECT_EVENT("zero", "node=%d bytes=%zu latency_ns=N", NODE, PAGE_BYTES);

	ASSERT_EQ(0, clear_trace());
	ASSERT_EQ(0, set_event("page_alloc", "1"));
	ASSERT_EQ(0, set_event("pool_empty", "1"));
	arg.policy = ACTMEM_POLICY_BIND;
	arg.nodes[0] = 1 << NODE;
	fd = create(self->device, &arg);
	ASSERT_LE(0, fd);
	read_events();
	EXPECT_EQ(PAGES + 1, count("page_alloc"));
	/* The worker may have put one there again. */
	for (i = 0; i < PAGES; i++)
		EXPECT_EVENT("page_alloc", "node=%d from_pool=1 latency_ns=N", NODE);
	next_event = 0;
	EXPECT_EVENT("pool_empty", "node=%d target=%zu", NODE, PAGES * PAGE_BYTES);
	close(fd);
	ASSERT_EQ(0, set_pool(0));
}

TEST_F(trace, a_pool_gives_way)
{
	size_t freed = 0;
	int i, shrinks;

	ASSERT_EQ(0, set_pool(PAGES));
	wait_ready(PAGES);
	ASSERT_EQ(0, clear_trace());
	ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
	read_events();
	shrinks = count("pool_shrink");
	ASSERT_LT(0, shrinks);
	for (i = 0; i < shrinks; i++) {
		const char *fields = find("pool_shrink")->fields;
		unsigned long wanted, here, held;
		int node;

		ASSERT_EQ(4, sscanf(fields, "node=%d wanted=%lu freed=%lu held=%lu", &node,
				    &wanted, &here, &held));
		EXPECT_EQ(NODE, node);
		EXPECT_LT(0, wanted);
		freed += here;
		EXPECT_EQ(PAGES * PAGE_BYTES - freed, held);
	}
	EXPECT_EQ(PAGES * PAGE_BYTES, freed);
	ASSERT_EQ(0, set_pool(0));
}

TEST_F(trace, a_pool_finds_nothing)
{
	size_t pages = node_memory(NODE, "MemTotal") / PAGE_BYTES;

	ASSERT_EQ(0, set_event("pool_fill", "0"));
	ASSERT_EQ(0, set_event("zero", "0"));
	ASSERT_EQ(0, set_pool(pages));
	wait_for_events("pool_stall", 1);
	EXPECT_STREQ(text("target=%zu retry_ms=1000", pages * PAGE_BYTES),
		     strstr(find("pool_stall")->fields, "target="));
	next_event = 0;
	EXPECT_LT(number_of("pool_stall", "held="), pages * PAGE_BYTES);
	ASSERT_EQ(0, set_pool(0));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
