// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* O_DIRECT between a region and an NVMe disk: the disk reads and writes the region itself. */

#include "device_test.h"

#define BLOCK	4096

FIXTURE(direct_io)
{
	struct region region;
	unsigned char *ordinary;
	int disk;
};

FIXTURE_SETUP(direct_io)
{
	self->disk = open(DISK, O_RDWR | O_DIRECT | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
	ASSERT_EQ(0, region_make(&self->region));
	self->ordinary = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->ordinary);
}

FIXTURE_TEARDOWN(direct_io)
{
	region_drop(&self->region);
	munmap(self->ordinary, LENGTH);
	close(self->disk);
}

TEST_F(direct_io, region_to_disk)
{
	pattern_fill(self->region.memory, LENGTH, 1);
	ASSERT_EQ(LENGTH, pwrite(self->disk, self->region.memory, LENGTH, 0));
	ASSERT_EQ(LENGTH, pread(self->disk, self->ordinary, LENGTH, 0));
	EXPECT_TRUE(pattern_holds(self->ordinary, LENGTH, 1));
}

TEST_F(direct_io, disk_to_region)
{
	pattern_fill(self->ordinary, LENGTH, 2);
	ASSERT_EQ(LENGTH, pwrite(self->disk, self->ordinary, LENGTH, LENGTH));
	ASSERT_EQ(LENGTH, pread(self->disk, self->region.memory, LENGTH, LENGTH));
	EXPECT_TRUE(pattern_holds(self->region.memory, LENGTH, 2));
}

/* A block that lies on both sides of a page's edge, and nothing around it. */
TEST_F(direct_io, across_an_edge)
{
	unsigned char *edge = self->region.memory + PAGE_BYTES - BLOCK / 2;
	size_t at;

	memset(self->region.memory, 0x5a, LENGTH);
	pattern_fill(self->ordinary, BLOCK, 3);
	ASSERT_EQ(BLOCK, pwrite(self->disk, self->ordinary, BLOCK, 0));
	ASSERT_EQ(BLOCK, pread(self->disk, edge, BLOCK, 0));
	EXPECT_TRUE(pattern_holds(edge, BLOCK, 3));
	for (at = 0; at < LENGTH; at++)
		if (self->region.memory + at < edge || self->region.memory + at >= edge + BLOCK)
			ASSERT_EQ(0x5a, self->region.memory[at]);
}

TEST_F(direct_io, untouched_region)
{
	memset(self->ordinary, 0xff, LENGTH);
	ASSERT_EQ(LENGTH, pwrite(self->disk, self->ordinary, LENGTH, 0));
	ASSERT_EQ(LENGTH, pwrite(self->disk, self->region.memory, LENGTH, 0));
	ASSERT_EQ(LENGTH, pread(self->disk, self->ordinary, LENGTH, 0));
	ASSERT_EQ(0, self->ordinary[0]);
	EXPECT_EQ(0, memcmp(self->ordinary, self->ordinary + 1, LENGTH - 1));
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
