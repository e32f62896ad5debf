// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A region from and to an NVMe disk, by O_DIRECT: with read(2) and write(2), and by
 * io_uring, as a registered buffer and as it is.
 */
#include "device_test.h"

#define BLOCK	4096

FIXTURE(fixed_buffers)
{
	struct io_uring ring;
	struct region region;
	unsigned char *ordinary;
	int disk;
	int registered;
};

FIXTURE_SETUP(fixed_buffers)
{
	self->disk = open(DISK, O_RDWR | O_DIRECT | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
	ASSERT_EQ(0, region_make(&self->region));
	self->ordinary = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->ordinary);
	ASSERT_EQ(0, io_uring_queue_init(8, &self->ring, 0));
	self->registered = register_region(&self->ring, &self->region);
}

FIXTURE_TEARDOWN(fixed_buffers)
{
	io_uring_queue_exit(&self->ring);
	region_drop(&self->region);
	munmap(self->ordinary, LENGTH);
	close(self->disk);
	EXPECT_TRUE(region_gone(&self->region));
}

/* One transfer of all of the region; returns the completion's result. */
static int transfer(FIXTURE_DATA(fixed_buffers) *self, bool fixed, bool write)
{
	return disk_transfer(&self->ring, fixed, write, self->disk, self->region.memory, LENGTH, 0);
}

/* A block that lies on both sides of a page's edge, and nothing around it. */
TEST_F(fixed_buffers, across_an_edge)
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

TEST_F(fixed_buffers, untouched_region)
{
	memset(self->ordinary, 0xff, LENGTH);
	ASSERT_EQ(LENGTH, pwrite(self->disk, self->region.memory, LENGTH, 0));
	ASSERT_EQ(LENGTH, pread(self->disk, self->ordinary, LENGTH, 0));
	ASSERT_EQ(0, self->ordinary[0]);
	EXPECT_EQ(0, memcmp(self->ordinary, self->ordinary + 1, LENGTH - 1));
}

TEST_F(fixed_buffers, registration)
{
	EXPECT_EQ(kernel_registers() ? 0 : -EOPNOTSUPP, self->registered);
}

static int both_ways(FIXTURE_DATA(fixed_buffers) *self, bool fixed)
{
	unsigned char *memory = self->region.memory;

	pattern_fill(memory, LENGTH, 1);
	CHECK(transfer(self, fixed, true) == (int)LENGTH);
	CHECK(pread(self->disk, self->ordinary, LENGTH, 0) == (ssize_t)LENGTH);
	CHECK(pattern_holds(self->ordinary, LENGTH, 1));

	pattern_fill(self->ordinary, LENGTH, 2);
	CHECK(pwrite(self->disk, self->ordinary, LENGTH, 0) == (ssize_t)LENGTH);
	CHECK(transfer(self, fixed, false) == (int)LENGTH);
	CHECK(pattern_holds(memory, LENGTH, 2));
	return 0;
}

TEST_F(fixed_buffers, both_ways)
{
	EXPECT_EQ(0, both_ways(self, false));
	if (kernel_registers()) {
		EXPECT_EQ(0, both_ways(self, true));
	} else {
		EXPECT_EQ(-EFAULT, transfer(self, true, false));
	}
}

/* Registered memory outlives the region, is counted, and still holds its data. */
TEST_F(fixed_buffers, registered_outlives_region)
{
	struct actmem_ioctl_info seen;

	if (!kernel_registers()) {
		region_drop(&self->region);
		EXPECT_TRUE(region_gone(&self->region));
		return;
	}
	ASSERT_EQ(0, self->registered);
	pattern_fill(self->region.memory, LENGTH, 5);
	ASSERT_EQ(0, region_info(&self->region, &seen));
	EXPECT_EQ(LENGTH, seen.pinned_bytes);
	EXPECT_EQ(0, seen.state & ACTMEM_INFO_LINGERING);

	region_drop(&self->region);
	ASSERT_EQ(0, region_info(&self->region, &seen));
	EXPECT_EQ(ACTMEM_INFO_LINGERING, seen.state & ACTMEM_INFO_LINGERING);
	EXPECT_EQ(LENGTH, seen.pinned_bytes);
	EXPECT_EQ(LENGTH, seen.allocated_bytes);
	EXPECT_EQ(0, seen.mapped_bytes);

	ASSERT_EQ(LENGTH, transfer(self, true, true));
	ASSERT_EQ(LENGTH, pread(self->disk, self->ordinary, LENGTH, 0));
	EXPECT_TRUE(pattern_holds(self->ordinary, LENGTH, 5));

	ASSERT_EQ(0, io_uring_unregister_buffers(&self->ring));
	EXPECT_TRUE(region_gone(&self->region));
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
