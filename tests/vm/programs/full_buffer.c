// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * io_uring: a region of 1 GiB, the most that one registered buffer can be, and
 * all of it from and to an NVMe disk. Linux 6.1 does not register it, and does
 * the same by plain READ and WRITE.
 */
#include <liburing.h>

#include "device_test.h"

#define FULL	((size_t)1 << 30)
#define BLOCK	4096
#define DEPTH	64

FIXTURE(full_buffer)
{
	struct io_uring ring;
	struct region region;
	int disk;
	bool registered;
};

FIXTURE_SETUP(full_buffer)
{
	int err;

	self->disk = open(DISK, O_RDWR | O_DIRECT | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
	ASSERT_EQ(0, region_make_pages(&self->region, FULL / PAGE_BYTES));
	ASSERT_EQ(0, io_uring_queue_init(DEPTH, &self->ring, 0));
	err = register_region(&self->ring, &self->region);
	ASSERT_EQ(kernel_registers() ? 0 : -EOPNOTSUPP, err);
	self->registered = !err;
}

FIXTURE_TEARDOWN(full_buffer)
{
	io_uring_queue_exit(&self->ring);
	region_drop(&self->region);
	close(self->disk);
	EXPECT_TRUE(region_gone(&self->region));
	EXPECT_EQ(0, node_sum("lingering_bytes"));
}

/* One transfer, registered where the kernel can; returns the completion's result. */
static int transfer(FIXTURE_DATA(full_buffer) *self, bool write, size_t offset, size_t length,
		    off_t at)
{
	return disk_transfer(&self->ring, self->registered, write, self->disk,
			     self->region.memory + offset, length, at);
}

/* By words, as bytes take long in an emulated machine; no two blocks are the same. */
static void fill(void *memory, size_t length, uint64_t seed)
{
	uint64_t *words = memory;
	size_t i;

	for (i = 0; i < length / sizeof(*words); i++)
		words[i] = (i + seed) * 0x9e3779b97f4a7c15ULL;
}

static bool holds(const void *memory, size_t length, uint64_t seed)
{
	const uint64_t *words = memory;
	size_t i;

	for (i = 0; i < length / sizeof(*words); i++)
		if (words[i] != (i + seed) * 0x9e3779b97f4a7c15ULL)
			return false;
	return true;
}

static bool is_filled_with(const unsigned char *memory, size_t length, unsigned char byte)
{
	return memory[0] == byte && !memcmp(memory, memory + 1, length - 1);
}

TEST_F(full_buffer, all_of_it_at_once_both_ways)
{
	struct actmem_ioctl_info seen;

	ASSERT_EQ(0, region_info(&self->region, &seen));
	EXPECT_EQ(self->registered ? FULL : 0, seen.pinned_bytes);
	fill(self->region.memory, FULL, 1);
	ASSERT_EQ((int)FULL, transfer(self, true, 0, FULL, 0));
	memset(self->region.memory, 0, FULL);
	ASSERT_EQ((int)FULL, transfer(self, false, 0, FULL, 0));
	EXPECT_TRUE(holds(self->region.memory, FULL, 1));
	EXPECT_EQ((long)FULL, (long)pmd_mapped(self->region.memory, FULL));
}

TEST_F(full_buffer, its_last_blocks_and_none_beyond)
{
	unsigned char *end = self->region.memory + FULL;
	const size_t edge = FULL - PAGE_BYTES - BLOCK / 2;

	memset(self->region.memory + edge - BLOCK, 0x5a, FULL - edge + BLOCK);
	fill(end - BLOCK, BLOCK, 2);
	ASSERT_EQ(BLOCK, transfer(self, true, FULL - BLOCK, BLOCK, 0));
	memset(end - BLOCK, 0x5a, BLOCK);

	/* The last block, one on both sides of the last page's edge, and nothing else. */
	ASSERT_EQ(BLOCK, transfer(self, false, FULL - BLOCK, BLOCK, 0));
	EXPECT_TRUE(holds(end - BLOCK, BLOCK, 2));
	ASSERT_EQ(BLOCK, transfer(self, false, edge, BLOCK, 0));
	EXPECT_TRUE(holds(self->region.memory + edge, BLOCK, 2));
	EXPECT_TRUE(is_filled_with(self->region.memory + edge - BLOCK, BLOCK, 0x5a));
	EXPECT_TRUE(is_filled_with(self->region.memory + edge + BLOCK,
				   FULL - BLOCK - edge - BLOCK, 0x5a));

	/* The last sector; and what would be partly or all beyond. */
	ASSERT_EQ(512, transfer(self, false, FULL - 512, 512, BLOCK - 512));
	EXPECT_TRUE(holds(end - BLOCK, BLOCK, 2));
	if (self->registered) {
		EXPECT_EQ(-EFAULT, transfer(self, false, FULL - BLOCK, 2 * BLOCK, 0));
		EXPECT_EQ(-EFAULT, transfer(self, false, FULL, BLOCK, 0));
	}
	EXPECT_TRUE(holds(end - BLOCK, BLOCK, 2));
}

/*
 * Reads all of the disk again and again, with as much in flight as the ring
 * takes; tells by a byte when it has begun. Ends only where something is wrong.
 */
static void keep_reading(int disk, bool registers, int told)
{
	const size_t length = 16 * PAGE_BYTES, each = length / DEPTH;
	struct io_uring_cqe *cqe;
	struct region region = { .fd = -1 };
	struct io_uring ring;
	size_t i;

	if (region_make_pages(&region, length / PAGE_BYTES) ||
	    io_uring_queue_init(DEPTH, &ring, 0) ||
	    register_region(&ring, &region) != (registers ? 0 : -EOPNOTSUPP))
		return;
	for (i = 0; ; i++) {
		size_t at = i % DEPTH * each;

		prepare_disk(&ring, registers, false, disk, region.memory + at, each, at);
		if (i < DEPTH - 1)
			continue;
		if (i == DEPTH - 1 && write(told, "", 1) != 1)
			return;
		if (io_uring_submit(&ring) < 1 || io_uring_wait_cqe(&ring, &cqe) ||
		    cqe->res != (int)each)
			return;
		io_uring_cqe_seen(&ring, cqe);
	}
}

TEST_F(full_buffer, a_killed_reader_leaves_nothing)
{
	int attempt, status, ends[2];
	char byte;

	region_drop(&self->region);
	io_uring_unregister_buffers(&self->ring);
	ASSERT_TRUE(region_gone(&self->region));
	for (attempt = 0; attempt < 8; attempt++) {
		pid_t child;

		ASSERT_EQ(0, pipe(ends));
		child = fork();
		ASSERT_LE(0, child);
		if (!child) {
			keep_reading(self->disk, self->registered, ends[1]);
			_exit(1);
		}
		close(ends[1]);
		ASSERT_EQ(1, read(ends[0], &byte, 1));
		close(ends[0]);
		usleep(attempt * 3000);
		EXPECT_EQ(1, regions());
		ASSERT_EQ(0, kill(child, SIGKILL));
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		/* The kernel ends a ring, and what it holds, in the background. */
		while (regions() || lingering_regions() || node_sum("region_bytes"))
			usleep(10000);
	}
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
