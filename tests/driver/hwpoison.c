// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The kernel's tool for tests of failing memory takes an error back
 * (hwpoison-inject's unpoison-pfn), and lets go of the page as if that were its own:
 * no page of a region is lost to whoever allocates next. It refuses to do so once an
 * error has been reported that is none of its own, as other tests do.
 */
#include "poison_test.h"

#define UNPOISON	"/sys/kernel/debug/hwpoison/unpoison-pfn"
#define PAGES		3

FIXTURE(hwpoison)
{
	int device;
	int fd;
	char *memory;
};

FIXTURE_SETUP(hwpoison)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	self->fd = create_pages(self->device, PAGES);
	ASSERT_LE(0, self->fd);
	self->memory = map_and_touch(self->fd, PAGES);
	ASSERT_NE(MAP_FAILED, self->memory);
}

FIXTURE_TEARDOWN(hwpoison)
{
	munmap(self->memory, PAGES * PAGE_BYTES);
	close(self->fd);
	close(self->device);
}

static int unpoison(uint64_t frame)
{
	char text[32];

	snprintf(text, sizeof(text), "%#llx", (unsigned long long)frame);
	return put(UNPOISON, text);
}

/* Nobody has the page but its slot. */
TEST_F(hwpoison, taken_back_in_a_region)
{
	uint64_t frame = frame_of(self->memory + PAGE_BYTES);

	poison_frame(frame);
	EXPECT_EQ(1, poisoned_pages(self->fd));
	munmap(self->memory, PAGES * PAGE_BYTES);
	EXPECT_EQ(-EBUSY, unpoison(frame));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	EXPECT_EQ(PAGES, pages_held(self->fd));
	EXPECT_EQ(0, discard_patiently(self->fd, 1, 1));
	EXPECT_EQ(0, populate(self->fd, 1, 1));
	EXPECT_EQ(0, poisoned_pages(self->fd));
	self->memory = map_and_touch(self->fd, PAGES);
	ASSERT_NE(MAP_FAILED, self->memory);
	EXPECT_NE(frame, frame_of(self->memory + PAGE_BYTES));
}

/* Others of its small pages may have failed as well. */
TEST_F(hwpoison, taken_back_when_out_of_use)
{
	uint64_t frame = frame_of(self->memory + PAGE_BYTES);
	long poisoned;

	poison_frame(frame);
	EXPECT_EQ(1, poisoned_pages(self->fd));
	poisoned = all_poisoned_pages();
	munmap(self->memory, PAGES * PAGE_BYTES);
	EXPECT_EQ(0, discard_patiently(self->fd, 1, 1));
	EXPECT_EQ(-EBUSY, unpoison(frame));
	EXPECT_EQ(poisoned, all_poisoned_pages());
	self->memory = map_and_touch(self->fd, PAGES);
	ASSERT_NE(MAP_FAILED, self->memory);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
