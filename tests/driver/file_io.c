// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reading, writing, seeking in, allocating and punching regions as files, named
 * and unnamed ones, against a model of what they contain.
 */
#include "names_test.h"

#include <sys/sendfile.h>

#define NAME	AT "/region"
#define PAGES	4
#define LENGTH	(PAGES * PAGE_BYTES)

#define PUNCH	(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

FIXTURE(file)
{
	FIXTURE_DATA(names) names;
	int fd;
	/* What the region is to contain, and which of its pages are to be there. */
	char *model;
	bool there[PAGES];
	char *buffer;
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
	self->model = calloc(1, LENGTH);
	self->buffer = malloc(LENGTH);
	ASSERT_TRUE(self->model && self->buffer);
}

FIXTURE_TEARDOWN(file)
{
	close(self->fd);
	unlink(NAME);
	free(self->model);
	free(self->buffer);
	names_teardown(_metadata, &self->names, NULL);
}

static void mark(FIXTURE_DATA(file) *self, size_t offset, size_t length)
{
	size_t i;

	for (i = offset / PAGE_BYTES; i * PAGE_BYTES < offset + length; i++)
		self->there[i] = true;
}

static int write_some(FIXTURE_DATA(file) *self, size_t offset, size_t length, char byte)
{
	memset(self->buffer, byte, length);
	CHECK(pwrite(self->fd, self->buffer, length, offset) == (ssize_t)length);
	memset(self->model + offset, byte, length);
	mark(self, offset, length);
	return 0;
}

static int punch_some(FIXTURE_DATA(file) *self, size_t offset, size_t length)
{
	size_t i;

	CHECK(!fallocate(self->fd, PUNCH, offset, length));
	memset(self->model + offset, 0, length);
	for (i = 0; i < PAGES; i++)
		if (offset <= i * PAGE_BYTES && (i + 1) * PAGE_BYTES <= offset + length)
			self->there[i] = false;
	return 0;
}

static int read_some(FIXTURE_DATA(file) *self, size_t offset, size_t length)
{
	CHECK(pread(self->fd, self->buffer, length, offset) == (ssize_t)length);
	CHECK(!memcmp(self->buffer, self->model + offset, length));
	return 0;
}

/* Where data or a hole begins from @offset on, by the model. */
static off_t expected(const FIXTURE_DATA(file) *self, off_t offset, bool data)
{
	size_t i = offset / PAGE_BYTES;

	if (i >= PAGES)
		return -1;
	if (self->there[i] == data)
		return offset;
	while (i < PAGES && self->there[i] != data)
		i++;
	return i == PAGES && data ? -1 : (off_t)(i * PAGE_BYTES);
}

static int check_seeks(FIXTURE_DATA(file) *self)
{
	off_t offset;

	for (offset = 0; offset <= (off_t)LENGTH; offset += PAGE_BYTES / 2) {
		CHECK(lseek(self->fd, offset, SEEK_DATA) == expected(self, offset, true));
		CHECK(lseek(self->fd, offset, SEEK_HOLE) == expected(self, offset, false));
	}
	return 0;
}

/* The model's whole contents, and nothing allocated that was only read. */
static int check_all(FIXTURE_DATA(file) *self)
{
	long pages = 0;
	size_t i;

	CHECK(!read_some(self, 0, LENGTH));
	for (i = 0; i < PAGES; i++)
		pages += self->there[i];
	CHECK(pages_allocated(self->fd) == pages);
	return check_seeks(self);
}

TEST_F(file, is_as_its_model)
{
	unsigned int seed = 12345;
	int round;

	EXPECT_EQ(0, check_all(self));
	for (round = 0; round < 60; round++) {
		size_t offset = rand_r(&seed) % LENGTH;
		size_t length = 1 + rand_r(&seed) % (LENGTH - offset);

		/* Lengths of all magnitudes. */
		length = (length >> rand_r(&seed) % 22) + 1;
		if (offset + length > LENGTH)
			length = LENGTH - offset;
		switch (rand_r(&seed) % 4) {
		case 0:
		case 1:
			ASSERT_EQ(0, write_some(self, offset, length, round + 1));
			break;
		case 2:
			ASSERT_EQ(0, read_some(self, offset, length));
			break;
		case 3:
			ASSERT_EQ(0, punch_some(self, offset, length));
			break;
		}
	}
	EXPECT_EQ(0, check_all(self));
	/* Whole pages, and parts of two. */
	ASSERT_EQ(0, write_some(self, 0, LENGTH, 'w'));
	ASSERT_EQ(0, punch_some(self, PAGE_BYTES / 2, 2 * PAGE_BYTES));
	EXPECT_EQ(0, check_all(self));
	ASSERT_EQ(0, punch_some(self, 100, 200));
	ASSERT_EQ(0, punch_some(self, PAGE_BYTES - 1, 2));
	EXPECT_EQ(0, check_all(self));
	ASSERT_EQ(0, punch_some(self, 0, LENGTH));
	EXPECT_EQ(0, check_all(self));
}

TEST_F(file, shows_what_is_mapped)
{
	char *memory = map(self->fd, PAGES);

	ASSERT_NE(MAP_FAILED, memory);
	memory[PAGE_BYTES + 5] = 'm';
	ASSERT_EQ(1, pread(self->fd, self->buffer, 1, PAGE_BYTES + 5));
	EXPECT_EQ('m', self->buffer[0]);
	ASSERT_EQ(3, pwrite(self->fd, "abc", 3, 2 * PAGE_BYTES - 1));
	EXPECT_EQ(0, memcmp(memory + 2 * PAGE_BYTES - 1, "abc", 3));
	/* From one page of its own to another, both of them missing. */
	EXPECT_EQ(4096, pwrite(self->fd, memory + 3 * PAGE_BYTES, 4096, 0));
	EXPECT_EQ(PAGES, pages_allocated(self->fd));
	munmap(memory, LENGTH);
}

TEST_F(file, ends_where_it_ends)
{
	struct iovec vectors[] = { { self->buffer, 10 }, { self->buffer + 10, 10 } };
	int flags = fcntl(self->fd, F_GETFL);

	EXPECT_EQ(0, pread(self->fd, self->buffer, 1, LENGTH));
	EXPECT_EQ(0, pread(self->fd, self->buffer, 1, 1L << 40));
	EXPECT_EQ(5, pread(self->fd, self->buffer, 100, LENGTH - 5));
	EXPECT_EQ(15, preadv(self->fd, vectors, 2, LENGTH - 15));
	EXPECT_EQ(0, pages_allocated(self->fd));
	EXPECT_EQ(-1, pwrite(self->fd, "x", 1, LENGTH));
	EXPECT_EQ(EFBIG, errno);
	EXPECT_EQ(5, pwrite(self->fd, self->buffer, 100, LENGTH - 5));
	EXPECT_EQ(-1, fallocate(self->fd, 0, PAGE_BYTES, LENGTH));
	EXPECT_EQ(EFBIG, errno);
	EXPECT_EQ(1, pages_allocated(self->fd));
	/* What lies behind the end is a hole already. */
	EXPECT_EQ(0, fallocate(self->fd, PUNCH, LENGTH - 5, 1L << 40));
	EXPECT_EQ(0, fallocate(self->fd, PUNCH, LENGTH, PAGE_BYTES));
	EXPECT_EQ(1, pages_allocated(self->fd));
	EXPECT_EQ(-1, fallocate(self->fd, FALLOC_FL_ZERO_RANGE, 0, PAGE_BYTES));
	EXPECT_EQ(EOPNOTSUPP, errno);
	EXPECT_EQ(-1, fallocate(self->fd, FALLOC_FL_COLLAPSE_RANGE, 0, PAGE_BYTES));
	EXPECT_EQ(EOPNOTSUPP, errno);
	ASSERT_EQ(0, fcntl(self->fd, F_SETFL, flags | O_APPEND));
	EXPECT_EQ(-1, write(self->fd, "x", 1));
	EXPECT_EQ(EFBIG, errno);
	EXPECT_EQ(0, fsync(self->fd));
}

TEST_F(file, bad_memory_is_told)
{
	char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, edge);
	ASSERT_EQ(0, munmap(edge + 4096, 4096));
	EXPECT_EQ(-1, pread(self->fd, edge + 4096, 10, 0));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, pwrite(self->fd, edge + 4096, 10, 0));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(6, pread(self->fd, edge + 4090, 10, 0));
	EXPECT_EQ(6, pwrite(self->fd, edge + 4090, 10, 0));
	munmap(edge, 4096);
}

TEST_F(file, allocates_what_is_touched)
{
	ASSERT_EQ(0, fallocate(self->fd, 0, PAGE_BYTES - 1, 2));
	EXPECT_EQ(2, pages_allocated(self->fd));
	ASSERT_EQ(0, fallocate(self->fd, FALLOC_FL_KEEP_SIZE, 3 * PAGE_BYTES, PAGE_BYTES));
	EXPECT_EQ(3, pages_allocated(self->fd));
	ASSERT_EQ(0, posix_fallocate(self->fd, 0, LENGTH));
	EXPECT_EQ(PAGES, pages_allocated(self->fd));
}

TEST_F(file, a_held_page_cannot_be_punched)
{
	char *memory = map_and_touch(self->fd, PAGES);
	int ends[2];

	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, hold(memory + PAGE_BYTES, ends));
	EXPECT_EQ(-1, fallocate(self->fd, PUNCH, 0, LENGTH));
	EXPECT_EQ(EBUSY, errno);
	EXPECT_EQ(1, pages_allocated(self->fd));
	let_go(ends);
	EXPECT_EQ(0, fallocate(self->fd, PUNCH, 0, LENGTH));
	EXPECT_EQ(0, pages_allocated(self->fd));
	munmap(memory, LENGTH);
}

TEST_F(file, goes_through_pipes)
{
	int copy = open("/tmp/actmem-copy", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	off_t offset = PAGE_BYTES - 10, zero = 0;
	int ends[2];

	ASSERT_LE(0, copy);
	ASSERT_EQ(0, unlink("/tmp/actmem-copy"));
	ASSERT_EQ(0, write_some(self, offset, 20, 's'));
	ASSERT_EQ(20, sendfile(copy, self->fd, &offset, 20));
	ASSERT_EQ(20, pread(copy, self->buffer, 100, 0));
	EXPECT_EQ(0, memcmp(self->model + PAGE_BYTES - 10, self->buffer, 20));
	ASSERT_EQ(20, sendfile(self->fd, copy, &zero, 20));
	EXPECT_EQ(20, lseek(self->fd, 0, SEEK_CUR));
	ASSERT_EQ(20, pread(self->fd, self->buffer, 20, 0));
	EXPECT_EQ(0, memcmp(self->model + PAGE_BYTES - 10, self->buffer, 20));
	/* A pipe has a copy, not the page. */
	ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
	offset = 0;
	ASSERT_EQ(4096, splice(self->fd, &offset, ends[1], NULL, 4096, 0));
	EXPECT_EQ(0, fallocate(self->fd, PUNCH, 0, LENGTH));
	ASSERT_EQ(4096, read(ends[0], self->buffer, 4096));
	EXPECT_EQ('s', self->buffer[0]);
	let_go(ends);
	close(copy);
}

TEST_F(file, descriptors_hold_what_they_were_opened_for)
{
	char path[32];
	int reader, writer;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", self->fd);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	writer = open(path, O_WRONLY | O_CLOEXEC);
	ASSERT_LE(0, reader);
	ASSERT_LE(0, writer);
	EXPECT_EQ(1, write(writer, "w", 1));
	EXPECT_EQ(-1, read(writer, self->buffer, 1));
	EXPECT_EQ(EBADF, errno);
	EXPECT_EQ(1, read(reader, self->buffer, 1));
	EXPECT_EQ('w', self->buffer[0]);
	EXPECT_EQ(-1, write(reader, "w", 1));
	EXPECT_EQ(EBADF, errno);
	EXPECT_EQ(-1, fallocate(reader, PUNCH, 0, LENGTH));
	EXPECT_EQ(EBADF, errno);
	close(reader);
	close(writer);
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
