// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Regions as dma-bufs: what is seen through their mappings, and what cannot be mapped.
 */
#include "dmabuf_fixture.h"

TEST_F(dmabuf, shows_the_regions_bytes)
{
	int whole = export(self->fd, 0, PAGES), part = export(self->fd, 1, 2);
	char *memory = map_and_touch(self->fd, PAGES), *of_whole, *of_part, *last;

	ASSERT_NE(MAP_FAILED, memory);
	of_whole = map_buffer(whole, PAGES);
	of_part = map_buffer(part, 2);
	last = map_aligned(part, 1, 1, PROT_READ | PROT_WRITE);
	ASSERT_NE(MAP_FAILED, of_whole);
	ASSERT_NE(MAP_FAILED, of_part);
	ASSERT_NE(MAP_FAILED, last);
	memset(memory + PAGE_BYTES, 3, 2 * PAGE_BYTES);
	EXPECT_EQ(0, memcmp(memory, of_whole, PAGES * PAGE_BYTES));
	EXPECT_EQ(0, memcmp(memory + PAGE_BYTES, of_part, 2 * PAGE_BYTES));
	memset(last, 4, PAGE_BYTES);
	EXPECT_EQ(0, memcmp(memory + PAGE_BYTES, of_part, 2 * PAGE_BYTES));
	EXPECT_EQ(4, memory[2 * PAGE_BYTES]);
	EXPECT_EQ(4, of_whole[3 * PAGE_BYTES - 1]);
	EXPECT_EQ(1, of_whole[3 * PAGE_BYTES]);
	EXPECT_EQ(PAGES * PAGE_BYTES, pmd_mapped(of_whole, PAGES * PAGE_BYTES));
	EXPECT_EQ(2 * PAGE_BYTES, pmd_mapped(of_part, 2 * PAGE_BYTES));
	EXPECT_EQ(PAGE_BYTES, pmd_mapped(last, PAGE_BYTES));
	munmap(last, PAGE_BYTES);
	munmap(of_part, 2 * PAGE_BYTES);
	munmap(of_whole, PAGES * PAGE_BYTES);
	munmap(memory, PAGES * PAGE_BYTES);
	close(part);
	close(whole);
}

TEST_F(dmabuf, is_not_mapped_beyond_its_end)
{
	int part = export(self->fd, 1, 2);

	ASSERT_LE(0, part);
	EXPECT_EQ(MAP_FAILED, map_aligned(part, 0, 3, PROT_READ));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, map_aligned(part, 1, 2, PROT_READ));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, map_aligned(part, 2, 1, PROT_READ));
	EXPECT_EQ(EINVAL, errno);
	/* Nor as a copy of it. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE_BYTES, PROT_READ, MAP_PRIVATE, part, 0));
	EXPECT_EQ(EINVAL, errno);
	close(part);
}

/* A part gives access to no other, by the file of a mapping of it either. */
TEST_F(dmabuf, is_not_remapped)
{
	int part = export(self->fd, 1, 1);
	char *seen;

	ASSERT_LE(0, part);
	seen = map_aligned(part, 0, 1, PROT_READ | PROT_WRITE);
	ASSERT_NE(MAP_FAILED, seen);
	EXPECT_EQ(-1, syscall(SYS_remap_file_pages, seen, PAGE_BYTES, 0, 2 * PAGE_BYTES / 4096, 0));
	EXPECT_EQ(EACCES, errno);
	munmap(seen, PAGE_BYTES);
	close(part);
}

/* As programs do that know nothing of regions: at any address, any part of it. */
TEST_F(dmabuf, is_mapped_anywhere)
{
	const size_t length = PAGE_BYTES + 3 * 4096;
	int part = export(self->fd, 1, 2);
	char *room, *memory, *seen;

	ASSERT_LE(0, part);
	memory = map_and_touch(self->fd, PAGES);
	room = mmap(NULL, 4 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_NE(MAP_FAILED, room);
	seen = (char *)(((uintptr_t)room + PAGE_BYTES) & ~(PAGE_BYTES - 1)) + 4096;
	ASSERT_EQ(seen, mmap(seen, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, part,
			     7 * 4096));
	memset(seen, 9, length);
	EXPECT_EQ(0, memory[PAGE_BYTES + 7 * 4096 - 1]);
	EXPECT_EQ(0, memcmp(memory + PAGE_BYTES + 7 * 4096, seen, length));
	EXPECT_EQ(0, memory[PAGE_BYTES + 7 * 4096 + length]);
	EXPECT_EQ(0, pmd_mapped(seen, length));
	EXPECT_EQ(2, pages_pinned(self->fd));
	munmap(room, 4 * PAGE_BYTES);
	close(part);
	EXPECT_EQ(0, pages_pinned(self->fd));
	munmap(memory, PAGES * PAGE_BYTES);
	EXPECT_EQ(0, discard_patiently(self->fd, 0, PAGES));
}

/* A forked child has none of the region's mappings, whichever way they were made. */
TEST_F(dmabuf, is_not_inherited)
{
	int buffer = export(self->fd, 0, PAGES);
	char *memory = map_buffer(buffer, PAGES);
	pid_t child;

	ASSERT_NE(MAP_FAILED, memory);
	memory[0] = 1;
	child = fork();
	if (!child)
		_exit(msync(memory, PAGE_BYTES, MS_ASYNC) && errno == ENOMEM ? 0 : 1);
	EXPECT_EQ(0, wait_for(child));
	munmap(memory, PAGES * PAGE_BYTES);
	close(buffer);
}

/* Kernels differ in whether they see to that for all dma-bufs. */
TEST_F(dmabuf, is_not_executed)
{
	int buffer = export(self->fd, 0, PAGES);
	char *memory;

	ASSERT_LE(0, buffer);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE_BYTES, PROT_READ | PROT_EXEC, MAP_SHARED, buffer, 0));
	EXPECT_EQ(EPERM, errno);
	memory = map_buffer(buffer, PAGES);
	ASSERT_NE(MAP_FAILED, memory);
	EXPECT_EQ(-1, mprotect(memory, PAGES * PAGE_BYTES, PROT_READ | PROT_EXEC));
	EXPECT_EQ(EACCES, errno);
	munmap(memory, PAGES * PAGE_BYTES);
	close(buffer);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
