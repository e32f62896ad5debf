// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Copying from region to region: what arrives is what a byte-wise model says,
 * whatever the alignment; what is missing reads as zeros or is made.
 */
#include "copy_test.h"

#define PAGES	3
#define LENGTH	(PAGES * PAGE_BYTES)

/* Two regions, and what the first is to hold. */
FIXTURE(copy)
{
	int device;
	int to;
	int from;
	unsigned char *to_memory;
	unsigned char *from_memory;
	unsigned char *model;
};

/* Bytes that repeat at no distance that a mistake may have. */
static void fill(unsigned char *memory, size_t length, uint64_t seed)
{
	uint64_t *words = (uint64_t *)memory;
	size_t i;

	for (i = 0; i < length / 8; i++) {
		seed = seed * 6364136223846793005 + 1442695040888963407;
		words[i] = seed ^ seed >> 29;
	}
}

static size_t allocated(int fd)
{
	struct actmem_ioctl_info now;

	return info(fd, 0, &now) ? SIZE_MAX : now.allocated_bytes;
}

FIXTURE_SETUP(copy)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	ASSERT_EQ(0, regions());
	self->to = create_pages(self->device, PAGES);
	self->from = create_pages(self->device, PAGES);
	ASSERT_LE(0, self->to);
	ASSERT_LE(0, self->from);
	self->to_memory = map(self->to, PAGES);
	self->from_memory = map(self->from, PAGES);
	self->model = malloc(LENGTH);
	ASSERT_NE(MAP_FAILED, self->to_memory);
	ASSERT_NE(MAP_FAILED, self->from_memory);
	ASSERT_NE(NULL, self->model);
	fill(self->to_memory, LENGTH, 1);
	fill(self->from_memory, LENGTH, 2);
	memcpy(self->model, self->to_memory, LENGTH);
}

FIXTURE_TEARDOWN(copy)
{
	free(self->model);
	munmap(self->to_memory, LENGTH);
	munmap(self->from_memory, LENGTH);
	close(self->to);
	close(self->from);
	close(self->device);
}

/* Copies in the model too; around what was copied nothing else has changed. */
static bool copies_as_the_model(FIXTURE_DATA(copy) *self, uint64_t offset, uint64_t source_offset,
				uint64_t length)
{
	size_t from = offset < 64 ? 0 : offset - 64;
	size_t to = offset + length + 64 > LENGTH ? LENGTH : offset + length + 64;

	if (copy(self->to, offset, self->from, source_offset, length))
		return false;
	memcpy(self->model + offset, self->from_memory + source_offset, length);
	return !memcmp(self->to_memory + from, self->model + from, to - from);
}

TEST_F(copy, alignments)
{
	static const uint64_t boundaries[] = { 64, 4096, PAGE_BYTES, 2 * PAGE_BYTES };
	static const uint64_t before[] = { 0, 1, 3, 4, 7, 8, 9, 12, 31, 32, 33 };
	static const uint64_t lengths[] = { 1, 3, 4, 5, 7, 8, 9, 15, 31, 32, 33, 41, 64 };
	size_t i, j, k, l;

	for (i = 0; i < 4; i++) {
		for (j = 0; j < sizeof(before) / sizeof(before[0]); j++) {
			for (k = 0; k < 10; k += 3) {
				for (l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
					uint64_t offset = boundaries[i] - before[j];
					uint64_t source = boundaries[(i + l) % 4] - k;

					ASSERT_TRUE(copies_as_the_model(self, offset, source,
									lengths[l]))
						TH_LOG("%llu bytes from %llu to %llu",
						       (unsigned long long)lengths[l],
						       (unsigned long long)source,
						       (unsigned long long)offset);
				}
			}
		}
	}
	EXPECT_EQ(0, memcmp(self->to_memory, self->model, LENGTH));
}

TEST_F(copy, lengths)
{
	static const uint64_t offsets[] = { 0, 1, 8, 4095, 4096, 4097, PAGE_BYTES - 1, PAGE_BYTES };
	static const uint64_t lengths[] = {
		4095, 4096, 4097, 8192, 8193, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1,
		2 * PAGE_BYTES - 4097, 2 * PAGE_BYTES,
	};
	size_t i, j, k;

	for (i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		for (j = 0; j < sizeof(offsets) / sizeof(offsets[0]); j++)
			for (k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++)
				ASSERT_TRUE(copies_as_the_model(self, offsets[i], offsets[j],
								lengths[k]))
					TH_LOG("%llu bytes from %llu to %llu",
					       (unsigned long long)lengths[k],
					       (unsigned long long)offsets[j],
					       (unsigned long long)offsets[i]);
	EXPECT_TRUE(copies_as_the_model(self, 0, 0, LENGTH));
	/* Up to the last byte of either. */
	EXPECT_TRUE(copies_as_the_model(self, LENGTH - 1, 17, 1));
	EXPECT_TRUE(copies_as_the_model(self, 17, LENGTH - 1, 1));
	EXPECT_EQ(0, memcmp(self->to_memory, self->model, LENGTH));
}

TEST_F(copy, holes_read_as_zeros_and_stay)
{
	int lazy = create_lazy(self->device, PAGES);
	unsigned char *memory = map(lazy, PAGES);

	ASSERT_LE(0, lazy);
	ASSERT_NE(MAP_FAILED, memory);
	fill(memory + PAGE_BYTES, PAGE_BYTES, 3);
	ASSERT_EQ(PAGE_BYTES, allocated(lazy));
	ASSERT_EQ(0, copy(self->to, 1, lazy, 5, LENGTH - 6));
	EXPECT_EQ(PAGE_BYTES, allocated(lazy));
	EXPECT_EQ(self->model[0], self->to_memory[0]);
	EXPECT_TRUE(is_all(self->to_memory + 1, 0, PAGE_BYTES - 5));
	EXPECT_EQ(0, memcmp(self->to_memory + PAGE_BYTES - 4, memory + PAGE_BYTES, PAGE_BYTES));
	EXPECT_TRUE(is_all(self->to_memory + 2 * PAGE_BYTES - 4, 0, PAGE_BYTES - 1));
	EXPECT_EQ(0, memcmp(self->to_memory + LENGTH - 5, self->model + LENGTH - 5, 5));
	munmap(memory, LENGTH);
	close(lazy);
}

TEST_F(copy, missing_destinations_are_made)
{
	int lazy = create_lazy(self->device, PAGES);
	struct actmem_ioctl_info now;
	unsigned char *memory;

	ASSERT_LE(0, lazy);
	/* Bytes on either side of a boundary make both pages, and no other. */
	ASSERT_EQ(0, copy(lazy, PAGE_BYTES - 3, self->from, 100, 8));
	ASSERT_EQ(0, info(lazy, 0, &now));
	EXPECT_EQ(2 * PAGE_BYTES, now.allocated_bytes);
	EXPECT_EQ(2, now.demand_faults);
	EXPECT_EQ(0, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
	memory = map(lazy, PAGES);
	ASSERT_NE(MAP_FAILED, memory);
	EXPECT_TRUE(is_all(memory, 0, PAGE_BYTES - 3));
	EXPECT_EQ(0, memcmp(memory + PAGE_BYTES - 3, self->from_memory + 100, 8));
	EXPECT_TRUE(is_all(memory + PAGE_BYTES + 5, 0, PAGE_BYTES - 5));
	EXPECT_EQ(2 * PAGE_BYTES, allocated(lazy));
	munmap(memory, LENGTH);
	close(lazy);
}

TEST_F(copy, within_a_region)
{
	const uint64_t offset = PAGE_BYTES - 100, length = PAGE_BYTES + 7;
	char path[64];
	int again;

	ASSERT_EQ(0, copy(self->to, offset, self->to, offset + length, length));
	memcpy(self->model + offset, self->model + offset + length, length);
	EXPECT_EQ(0, memcmp(self->to_memory, self->model, LENGTH));
	/* Within a page, to the byte before and after. */
	ASSERT_EQ(0, copy(self->to, 1000, self->to, 1900, 900));
	ASSERT_EQ(0, copy(self->to, 5900, self->to, 5000, 900));
	memcpy(self->model + 1000, self->model + 1900, 900);
	memcpy(self->model + 5900, self->model + 5000, 900);
	EXPECT_EQ(0, memcmp(self->to_memory, self->model, LENGTH));

	EXPECT_EQ(-EINVAL, copy(self->to, 1000, self->to, 1899, 900));
	EXPECT_EQ(-EINVAL, copy(self->to, 1899, self->to, 1000, 900));
	EXPECT_EQ(-EINVAL, copy(self->to, 7, self->to, 7, 1));
	EXPECT_EQ(-EINVAL, copy(self->to, 0, self->to, 0, LENGTH));
	/* It is the same region by whatever descriptor. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", self->to);
	again = open(path, O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, again);
	EXPECT_EQ(-EINVAL, copy(self->to, 1000, again, 1899, 900));
	EXPECT_EQ(0, copy(self->to, 1000, again, 1900, 900));
	close(again);
	EXPECT_EQ(0, memcmp(self->to_memory, self->model, 1000));
}

/* Of a child that has no capability. */
static int inherited_from;

#define ALLOWED	2

static int within_memlock(int device)
{
	int lazy = create_lazy(device, PAGES);
	struct actmem_ioctl_copy arg = copy_of(100, inherited_from, 0, LENGTH - 100);
	unsigned char *to, *from;

	CHECK(lazy >= 0);
	CHECK(call(lazy, ACTMEM_IOC_COPY, &arg) == -ENOMEM);
	CHECK(arg.done == ALLOWED * PAGE_BYTES - 100);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK);
	CHECK(arg.why.wanted == PAGE_BYTES && arg.why.available == 0);
	CHECK(allocated(lazy) == ALLOWED * PAGE_BYTES);
	to = map(lazy, ALLOWED);
	from = map(inherited_from, PAGES);
	CHECK(to != MAP_FAILED && from != MAP_FAILED);
	CHECK(!memcmp(to + 100, from, arg.done));

	/* Discarded, the pages are no longer charged; then as far as before. */
	munmap(to, ALLOWED * PAGE_BYTES);
	CHECK(!discard(lazy, 0, PAGES));
	arg = copy_of(PAGE_BYTES, inherited_from, 0, ALLOWED * PAGE_BYTES);
	CHECK(!call(lazy, ACTMEM_IOC_COPY, &arg) && arg.done == ALLOWED * PAGE_BYTES);
	arg = copy_of(0, inherited_from, 0, 1);
	CHECK(call(lazy, ACTMEM_IOC_COPY, &arg) == -ENOMEM && arg.done == 0);
	return 0;
}

static int limited(int device)
{
	return set_memlock(ALLOWED * PAGE_BYTES) ? __LINE__ : as_user(USER, within_memlock, device);
}

TEST_F(copy, memlock_limits_what_is_made)
{
	inherited_from = self->from;
	EXPECT_EQ(0, as_user(0, limited, self->device));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
