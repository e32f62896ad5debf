// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Regions whose bytes take more than 32 bits to number. They are lazy, so that
 * little of the memory that they could have is ever used; but the machine must
 * have that much.
 */
#include "driver_test.h"

#define GIB	(1ULL << 30)
#define PAGES	(6 * GIB / PAGE_BYTES)
#define FAR	(5 * GIB / PAGE_BYTES)

FIXTURE(far)
{
	int device;
	int fd;
};

FIXTURE_SETUP(far)
{
	self->device = open_device();
	self->fd = must(create_lazy(self->device, PAGES));
}

FIXTURE_TEARDOWN(far)
{
	close(self->fd);
	close(self->device);
}

static size_t allocated_of(int fd)
{
	struct actmem_ioctl_info now;

	return info(fd, 0, &now) ? SIZE_MAX : now.allocated_bytes;
}

static unsigned char *map_far(int fd, size_t page, size_t pages)
{
	return mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    (off_t)(page * PAGE_BYTES));
}

TEST_F(far, populated_touched_and_discarded)
{
	struct actmem_ioctl_range arg;
	unsigned char *memory, *near;

	EXPECT_EQ(0, change_range(self->fd, ACTMEM_IOC_POPULATE, FAR, 2, &arg));
	EXPECT_EQ(2 * PAGE_BYTES, arg.done);
	EXPECT_EQ(2 * PAGE_BYTES, allocated_of(self->fd));

	memory = map_far(self->fd, FAR, 3);
	near = map_far(self->fd, FAR - 4 * GIB / PAGE_BYTES, 3);
	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_NE(MAP_FAILED, near);
	memset(memory, 0x5a, 3 * PAGE_BYTES);
	EXPECT_EQ(3 * PAGE_BYTES, allocated_of(self->fd));
	EXPECT_EQ(0, near[PAGE_BYTES]);
	EXPECT_EQ(4 * PAGE_BYTES, allocated_of(self->fd));

	/* Of 5 GiB, all but three pages are holes. */
	EXPECT_EQ(0, change_range(self->fd, ACTMEM_IOC_DISCARD, 1, FAR, &arg));
	EXPECT_EQ(FAR * PAGE_BYTES, arg.done);
	EXPECT_EQ(2 * PAGE_BYTES, allocated_of(self->fd));
	EXPECT_EQ(0, memory[0]);
	EXPECT_EQ(0x5a, memory[PAGE_BYTES]);
	munmap(near, 3 * PAGE_BYTES);
	munmap(memory, 3 * PAGE_BYTES);
}

/* Also through the descriptor that it was made with, beyond what 31 bits number. */
TEST_F(far, read)
{
	char *memory = mmap(NULL, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd,
			    2 * GIB - PAGE_BYTES);
	char word[] = "across", there[sizeof(word)] = "";

	ASSERT_NE(MAP_FAILED, memory);
	memcpy(memory + PAGE_BYTES - 3, word, sizeof(word));
	EXPECT_EQ(sizeof(word), pread(self->fd, there, sizeof(there), 2 * GIB - 3));
	EXPECT_STREQ(word, there);
	EXPECT_EQ(2 * PAGE_BYTES, allocated_of(self->fd));
	munmap(memory, 2 * PAGE_BYTES);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
