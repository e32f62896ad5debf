// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reading regions as files, named and unnamed ones, and what else they refuse.
 */
#include "names_test.h"

#define NAME	AT "/region"
#define PAGES	4
#define LENGTH	(PAGES * PAGE_BYTES)

FIXTURE(file)
{
	FIXTURE_DATA(names) names;
	int fd;
	/* The bytes that are read, and a mapping of the region. */
	char *buffer;
	char *memory;
};

FIXTURE_VARIANT(file)
{
	bool named;
};

FIXTURE_VARIANT_ADD(file, named)
{
	.named = true,
};

FIXTURE_VARIANT_ADD(file, unnamed)
{
	.named = false,
};

FIXTURE_SETUP(file)
{
	names_setup(_metadata, &self->names, NULL);
	self->fd = variant->named ? make_named(NAME, PAGES) :
				    create_lazy(self->names.device, PAGES);
	ASSERT_LE(0, self->fd);
	self->memory = mapped(map(self->fd, PAGES));
	self->buffer = malloc(LENGTH);
	ASSERT_NE(NULL, self->buffer);
}

FIXTURE_TEARDOWN(file)
{
	munmap(self->memory, LENGTH);
	close(self->fd);
	unlink(NAME);
	free(self->buffer);
	names_teardown(_metadata, &self->names, NULL);
}

/* Of pages that are there and of one that is missing, which stays so. */
TEST_F(file, is_read_as_it_is_mapped)
{
	unsigned int seed = 12345;
	size_t i;
	int round;

	for (i = 0; i < 3 * PAGE_BYTES; i++)
		if (i / PAGE_BYTES != 1)
			self->memory[i] = (char)(i ^ i >> 12);
	for (round = 0; round < 60; round++) {
		size_t offset = rand_r(&seed) % LENGTH;
		/* Lengths of all magnitudes. */
		size_t length = ((LENGTH - offset - 1) >> rand_r(&seed) % 22) + 1;

		ASSERT_EQ((ssize_t)length, pread(self->fd, self->buffer, length, offset));
		for (i = 0; i < length; i++) {
			size_t at = offset + i;
			bool is_missing = at / PAGE_BYTES == 1 || at / PAGE_BYTES == 3;

			if (self->buffer[i] != (is_missing ? 0 : (char)(at ^ at >> 12)))
				break;
		}
		ASSERT_EQ(length, i);
	}
	EXPECT_EQ(2, pages_allocated(self->fd));
}

TEST_F(file, ends_where_it_ends)
{
	struct iovec vectors[] = { { self->buffer, 10 }, { self->buffer + 10, 10 } };

	EXPECT_EQ(0, pread(self->fd, self->buffer, 1, LENGTH));
	EXPECT_EQ(0, pread(self->fd, self->buffer, 1, 1L << 40));
	EXPECT_EQ(5, pread(self->fd, self->buffer, 100, LENGTH - 5));
	EXPECT_EQ(15, preadv(self->fd, vectors, 2, LENGTH - 15));
	EXPECT_EQ((off_t)LENGTH, lseek(self->fd, 0, SEEK_END));
	EXPECT_EQ(0, fsync(self->fd));
	EXPECT_EQ(0, fdatasync(self->fd));
	EXPECT_EQ(0, msync(self->memory, LENGTH, MS_SYNC));
}

TEST_F(file, is_written_by_its_mappings_alone)
{
	EXPECT_ERRNO(EINVAL, pwrite(self->fd, "x", 1, 0));
	EXPECT_ERRNO(EOPNOTSUPP, fallocate(self->fd, 0, 0, LENGTH));
	EXPECT_ERRNO(EOPNOTSUPP, fallocate(self->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
					   PAGE_BYTES));
	EXPECT_EQ(0, pages_allocated(self->fd));
}

TEST_F(file, bad_memory_is_told)
{
	char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, edge);
	ASSERT_EQ(0, munmap(edge + 4096, 4096));
	self->memory[0] = 'm';
	EXPECT_ERRNO(EFAULT, pread(self->fd, edge + 4096, 10, 0));
	EXPECT_EQ(6, pread(self->fd, edge + 4090, 10, 0));
	/* Into a page of its own, which is missing. */
	EXPECT_EQ(4096, pread(self->fd, self->memory + 3 * PAGE_BYTES, 4096, 0));
	EXPECT_EQ('m', self->memory[3 * PAGE_BYTES]);
	munmap(edge, 4096);
}

/* Neither way may a pipe come to hold a page. */
TEST_F(file, does_not_go_through_pipes)
{
	off_t offset = 0;
	int ends[2];

	self->memory[0] = 's';
	ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
	EXPECT_ERRNO(EINVAL, splice(self->fd, &offset, ends[1], NULL, 4096, 0));
	ASSERT_EQ(1, write(ends[1], "p", 1));
	EXPECT_ERRNO(EINVAL, splice(ends[0], NULL, self->fd, &offset, 1, 0));
	EXPECT_EQ('s', self->memory[0]);
	let_go(ends);
}

TEST_F(file, descriptors_hold_what_they_were_opened_for)
{
	int reader = must(reopen(self->fd, O_RDONLY)), writer = must(reopen(self->fd, O_WRONLY));

	self->memory[0] = 'm';
	EXPECT_ERRNO(EBADF, read(writer, self->buffer, 1));
	EXPECT_EQ(1, read(reader, self->buffer, 1));
	EXPECT_EQ('m', self->buffer[0]);
	EXPECT_EQ(-EBADF, populate(reader, 0, 1));
	close(reader);
	close(writer);
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
