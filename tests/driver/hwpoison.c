// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Pages of a region that the kernel marks as failed and tells nobody of, as no machine
 * check has been logged: they stay in use, and are found when they leave their region.
 * If the mark is taken back (hwpoison-inject's unpoison-pfn), the kernel lets go of the
 * page as if that were its own: no page of a region or a pool is lost to whoever allocates next.
 * The kernel refuses to take it back once an error has been reported that is none of
 * its own, as other tests do: they come later.
 */

#define PAGES			3
#define MAKE_REGION		create_pages
#define FILL_REGION(memory)	memset(memory, 1, LENGTH)

#include "region_fixture.h"
#include "poison_test.h"
#include "pool_test.h"

#ifndef MADV_HWPOISON
#define MADV_HWPOISON	100
#endif

#define UNPOISON	"/sys/kernel/debug/hwpoison/unpoison-pfn"

static int unpoison(uint64_t frame)
{
	char text[32];

	snprintf(text, sizeof(text), "%#llx", (unsigned long long)frame);
	return put(UNPOISON, text);
}

/* Its page leaves, and is kept out of use. */
static void expect_found_when_it_leaves(struct __test_metadata *_metadata, int fd)
{
	long poisoned = all_poisoned_pages();

	EXPECT_EQ(0, poisoned_pages(fd));
	EXPECT_EQ(0, discard_patiently(fd, 1, 1));
	EXPECT_EQ(poisoned + 1, all_poisoned_pages());
	EXPECT_EQ(0, populate(fd, 1, 1));
	EXPECT_EQ(PAGES, pages_held(fd));
}

/* Kernels differ in what they return for memory that they cannot isolate. */
TEST_F(region, by_a_process)
{
	uint64_t frame = frame_of(self->memory + PAGE_BYTES);

	self->memory[PAGE_BYTES] = 0x11;
	madvise(self->memory + PAGE_BYTES + SMALL, SMALL, MADV_HWPOISON);
	EXPECT_EQ(0, touch(self->memory + PAGE_BYTES, false));
	EXPECT_EQ(0x11, self->memory[PAGE_BYTES]);
	EXPECT_EQ(0, populate(self->fd, 0, PAGES));
	expect_found_when_it_leaves(_metadata, self->fd);
	EXPECT_EQ(0, self->memory[PAGE_BYTES]);
	EXPECT_NE(frame, frame_of(self->memory + PAGE_BYTES));
}

/* Nobody has the page but its slot. */
TEST_F(region, taken_back_in_a_region)
{
	uint64_t frame = frame_of(self->memory + PAGE_BYTES);

	mark_frame(frame);
	munmap(self->memory, PAGES * PAGE_BYTES);
	EXPECT_EQ(-EBUSY, unpoison(frame));
	EXPECT_EQ(PAGES, pages_held(self->fd));
	expect_found_when_it_leaves(_metadata, self->fd);
	self->memory = mapped(map_and_touch(self->fd, PAGES));
	EXPECT_NE(frame, frame_of(self->memory + PAGE_BYTES));
}

/* Others of its small pages may have failed as well. */
TEST_F(region, taken_back_when_out_of_use)
{
	uint64_t frame = frame_of(self->memory + PAGE_BYTES);
	long poisoned;

	mark_frame(frame);
	munmap(self->memory, PAGES * PAGE_BYTES);
	expect_found_when_it_leaves(_metadata, self->fd);
	poisoned = all_poisoned_pages();
	EXPECT_EQ(-EBUSY, unpoison(frame));
	EXPECT_EQ(poisoned, all_poisoned_pages());
	self->memory = mapped(map_and_touch(self->fd, PAGES));
}

/* No region has the page; it is ready in a pool. */
TEST_F(region, taken_back_in_a_pool)
{
	long poisoned = all_poisoned_pages();
	uint64_t frame;
	char *memory;
	int fd;

	fill_pool(0, 1);
	fd = must(create_on(self->device, 0, 1));
	memory = mapped(map_and_touch(fd, 1));
	frame = frame_of(memory);
	munmap(memory, PAGE_BYTES);
	close(fd);
	wait_ready(0, 1);
	mark_frame(frame);
	EXPECT_EQ(-EBUSY, unpoison(frame));
	EXPECT_EQ(1, ready(0));
	/* The pool does not return the page to the page allocator. */
	EXPECT_EQ(0, set_pool(0, 0));
	EXPECT_EQ(poisoned + 1, all_poisoned_pages());
	EXPECT_EQ(-EBUSY, unpoison(frame));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
