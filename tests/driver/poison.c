// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Pages in which the hardware has found an error: none of them is ever given
 * to anybody again. mce-inject plays the hardware; of pages in a pool, which the driver
 * does not look for, hwpoison-inject plays the kernel that has marked them. The error
 * is in the second small page of a huge one, as the page allocator looks at the first
 * alone.
 */
#include "poison_test.h"
#include "pool_test.h"

#define PAGES	4

/* Whether any page of the region that is open as @fd is the one at @frame. */
static bool has_frame(int fd, size_t pages, uint64_t frame)
{
	char *memory = map_and_touch(fd, pages);
	bool found = false;
	size_t i;

	if (memory == MAP_FAILED)
		return true;
	for (i = 0; i < pages; i++)
		found |= frame_of(memory + i * PAGE_BYTES) == frame;
	munmap(memory, pages * PAGE_BYTES);
	return found;
}

FIXTURE(poison)
{
	int device;
	long poisoned;
};

FIXTURE_SETUP(poison)
{
	self->device = open_device();
	self->poisoned = all_poisoned_pages();
}

FIXTURE_TEARDOWN(poison)
{
	set_pool(0, 0);
	close(self->device);
}

/* Makes a region and gives it up with an error in one of its pages, which is told. */
static uint64_t give_back_one_with_an_error(int device)
{
	int fd = create_on(device, 0, PAGES);
	char *memory = map_and_touch(fd, PAGES);
	uint64_t frame = 0;

	if (memory != MAP_FAILED) {
		frame = frame_of(memory + PAGE_BYTES);
		if (fail_page(memory + PAGE_BYTES + SMALL))
			frame = 0;
		munmap(memory, PAGES * PAGE_BYTES);
	}
	close(fd);
	return frame;
}

TEST_F(poison, a_page_that_was_lent)
{
	uint64_t frame;
	int fd, round;

	fill_pool(0, PAGES);
	frame = give_back_one_with_an_error(self->device);
	ASSERT_NE(0, frame);
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, lent(0));
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
	/* The pool gets another one for it, if only when it is asked to. */
	fill_pool(0, PAGES);
	for (round = 0; round < 3; round++) {
		fd = must(create_on(self->device, 0, 8 * PAGES));
		EXPECT_FALSE(has_frame(fd, 8 * PAGES, frame));
		close(fd);
		wait_ready(0, PAGES);
	}
}

/* Of a page that the pool has ready, as a region has told before it gave it up. */
static uint64_t ready_frame(int device)
{
	int fd = create_on(device, 0, PAGES);
	char *memory = map_and_touch(fd, PAGES);
	uint64_t frame = 0;

	if (memory != MAP_FAILED) {
		frame = frame_of(memory + PAGE_BYTES);
		munmap(memory, PAGES * PAGE_BYTES);
	}
	close(fd);
	wait_ready(0, PAGES);
	return frame;
}

TEST_F(poison, a_page_that_is_ready)
{
	uint64_t frame;
	int fd;

	fill_pool(0, PAGES);
	frame = ready_frame(self->device);
	ASSERT_NE(0, frame);
	mark_frame(frame + 1);
	fd = must(create_on(self->device, 0, PAGES));
	EXPECT_EQ(0, poisoned_pages(fd));
	EXPECT_FALSE(has_frame(fd, PAGES, frame));
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
	close(fd);
	fill_pool(0, PAGES);
}

/* It does not go back to the page allocator either. */
TEST_F(poison, a_page_that_a_pool_gives_up)
{
	uint64_t frame;
	int fd;

	fill_pool(0, PAGES);
	frame = ready_frame(self->device);
	ASSERT_NE(0, frame);
	mark_frame(frame + 1);
	ASSERT_EQ(0, set_pool(0, 0));
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
	fd = must(create_on(self->device, 0, 8 * PAGES));
	EXPECT_FALSE(has_frame(fd, 8 * PAGES, frame));
	close(fd);
}

/* The page allocator would hand it out again. */
TEST_F(poison, a_page_of_no_pool)
{
	struct actmem_ioctl_create all = region_on(node_memory(0, "MemTotal") / PAGE_BYTES,
						   ACTMEM_POLICY_BIND, 1);
	struct actmem_ioctl_range arg;
	uint64_t frame;

	frame = give_back_one_with_an_error(self->device);
	ASSERT_NE(0, frame);
	EXPECT_EQ(0, regions());
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
	/* Not even who takes all that there is gets it. */
	all.flags = LAZY;
	ASSERT_LE(0, create(self->device, &all));
	EXPECT_EQ(-ENOMEM, change_range(all.fd, ACTMEM_IOC_POPULATE, 0, all.length / PAGE_BYTES,
					&arg));
	EXPECT_LT(8 * PAGES * PAGE_BYTES, arg.done);
	EXPECT_FALSE(has_frame(all.fd, arg.done / PAGE_BYTES, frame));
	close(all.fd);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
