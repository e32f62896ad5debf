// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reading a page in which the hardware has erred: EIO, and the bytes before it are
 * read. tests/vm/blemish marks the page, of which
 * the driver has not been told yet; nothing that a test can do makes the memory itself
 * fail.
 */
#include "poison_test.h"

#define BLEMISH	"/vm/modules/blemish.ko"
#define PFN	"/sys/module/blemish/parameters/pfn"

#define PAGES	3
#define LENGTH	(PAGES * PAGE_BYTES)
#define FAILED	(PAGE_BYTES + 5 * SMALL)

FIXTURE(file_poison)
{
	int device;
	int fd;
	char *memory;
	char *buffer;
};

/* The small page at this address, which is mapped. */
static int blemish(const char *address)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)frame_of(address));
	return put(PFN, text);
}

FIXTURE_SETUP(file_poison)
{
	int fd = open(BLEMISH, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		SKIP(return, "no " BLEMISH " for this kernel");
	ASSERT_EQ(0, syscall(SYS_finit_module, fd, "", 0));
	close(fd);
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
	ASSERT_EQ(0, blemish(self->memory + FAILED));
}

FIXTURE_TEARDOWN(file_poison)
{
	if (access(BLEMISH, R_OK))
		return;
	EXPECT_EQ(0, syscall(SYS_delete_module, "blemish", O_NONBLOCK));
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
	EXPECT_EQ(-1, pread(self->fd, self->buffer, 1, FAILED + SMALL - 1));
	EXPECT_EQ(EIO, errno);
	EXPECT_EQ(SMALL, pread(self->fd, self->buffer, SMALL, FAILED - SMALL));
	EXPECT_EQ(SMALL, pread(self->fd, self->buffer, SMALL, FAILED + SMALL));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
