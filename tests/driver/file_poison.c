// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reading a page in which the hardware has erred: EIO, and the bytes before it are
 * read.
 */
#include "poison_test.h"

#define PAGES	3
#define LENGTH	(PAGES * PAGE_BYTES)

FIXTURE(file_poison)
{
	int device;
	int fd;
	char *memory;
	char *buffer;
};

FIXTURE_SETUP(file_poison)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	self->fd = create_pages(self->device, PAGES);
	ASSERT_LE(0, self->fd);
	self->memory = map_and_touch(self->fd, PAGES);
	ASSERT_NE(MAP_FAILED, self->memory);
	self->buffer = malloc(LENGTH);
	ASSERT_NE(NULL, self->buffer);
	memset(self->memory, 0x11, LENGTH);
	memset(self->buffer, 0x22, LENGTH);
	poison(self->memory + PAGE_BYTES + 5 * SMALL);
	/* Until the driver has looked for the page. */
	ASSERT_EQ(1, poisoned_pages(self->fd));
}

FIXTURE_TEARDOWN(file_poison)
{
	free(self->buffer);
	munmap(self->memory, LENGTH);
	close(self->fd);
	close(self->device);
}

TEST_F(file_poison, read)
{
	EXPECT_EQ((ssize_t)PAGE_BYTES, pread(self->fd, self->buffer, LENGTH, 0));
	EXPECT_EQ(0, memcmp(self->buffer, self->memory, PAGE_BYTES));
	EXPECT_EQ(0x22, self->buffer[PAGE_BYTES]);
	EXPECT_EQ(-1, pread(self->fd, self->buffer, 1, PAGE_BYTES));
	EXPECT_EQ(EIO, errno);
	EXPECT_EQ(0x22, self->buffer[PAGE_BYTES]);
	EXPECT_EQ((ssize_t)PAGE_BYTES, pread(self->fd, self->buffer, LENGTH, 2 * PAGE_BYTES));

	/* The page that takes its place can be read, here as it is missing. */
	ASSERT_EQ(0, discard(self->fd, 1, 1));
	ASSERT_EQ((ssize_t)LENGTH, pread(self->fd, self->buffer, LENGTH, 0));
	EXPECT_EQ(0, self->buffer[PAGE_BYTES]);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
