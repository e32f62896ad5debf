// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Sealing: it is refused as long as anybody could still write, and from then on
 * nobody can.
 */
#include "names_test.h"

#include <pthread.h>

#define NAME	AT "/region"
#define PAGES	3
#define LENGTH	(PAGES * PAGE_BYTES)

static int seal(int fd)
{
	struct actmem_ioctl_seal arg = { .size = sizeof(arg) };

	return call(fd, ACTMEM_IOC_SEAL, &arg);
}

FIXTURE(seal)
{
	FIXTURE_DATA(names) names;
	int fd;
	/* The same, for reading only. */
	int reader;
};

FIXTURE_VARIANT(seal)
{
	bool named;
};

FIXTURE_VARIANT_ADD(seal, named)
{
	.named = true,
};

FIXTURE_VARIANT_ADD(seal, unnamed)
{
	.named = false,
};

FIXTURE_SETUP(seal)
{
	char path[32];

	names_setup(_metadata, &self->names, NULL);
	self->fd = variant->named ? make_named(NAME, PAGES) :
				    create_lazy(self->names.device, PAGES);
	ASSERT_LE(0, self->fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", self->fd);
	self->reader = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, self->reader);
	ASSERT_EQ(4, pwrite(self->fd, "seal", 4, PAGE_BYTES));
}

FIXTURE_TEARDOWN(seal)
{
	close(self->fd);
	close(self->reader);
	unlink(NAME);
	names_teardown(_metadata, &self->names, NULL);
}

static int check_sealed(int fd, int reader, int device)
{
	struct actmem_ioctl_copy copy = { .size = sizeof(copy), .length = 1, .source_fd = fd,
					  .source_offset = PAGE_BYTES };
	struct actmem_ioctl_info now;
	char *memory, bytes[4];
	int other;

	CHECK(!info(fd, 0, &now));
	CHECK(now.state & ACTMEM_INFO_SEALED);
	CHECK(map(fd, 1) == MAP_FAILED && errno == EPERM);
	CHECK(pwrite(fd, "x", 1, 0) == -1 && errno == EPERM);
	CHECK(discard(fd, 0, 1) == -EPERM);
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LENGTH) == -1);
	CHECK(errno == EPERM);
	CHECK(call(fd, ACTMEM_IOC_COPY, &copy) == -EPERM);
	CHECK(ftruncate(fd, 0) == -1);

	/* Reading goes on, and missing pages are zeros. */
	CHECK(pread(fd, bytes, 4, PAGE_BYTES) == 4 && !memcmp(bytes, "seal", 4));
	CHECK(!populate(fd, 0, 1));
	memory = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, reader, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(!memcmp(memory + PAGE_BYTES, "seal", 4));
	CHECK(!memory[0] && !memory[2 * PAGE_BYTES]);
	CHECK(pmd_mapped(memory, LENGTH) == LENGTH);
	CHECK(mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) && errno == EACCES);
	CHECK(!munmap(memory, LENGTH));
	/* What could be made writable later is refused, too. */
	CHECK(mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	other = create_pages(device, 1);
	copy.source_fd = fd;
	CHECK(!call(other, ACTMEM_IOC_COPY, &copy));
	close(other);
	return 0;
}

TEST_F(seal, is_for_good)
{
	char path[32];
	int again;

	ASSERT_EQ(0, seal(self->fd));
	EXPECT_EQ(0, check_sealed(self->fd, self->reader, self->names.device));
	EXPECT_EQ(0, seal(self->fd));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", self->fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	EXPECT_EQ(0, check_sealed(again, self->reader, self->names.device));
	close(again);
}

TEST_F(seal, waits_for_who_could_write)
{
	char *memory = map(self->fd, 1);
	int ends[2];

	ASSERT_NE(MAP_FAILED, memory);
	EXPECT_EQ(-EBUSY, seal(self->fd));
	/* It may become writable again. */
	ASSERT_EQ(0, mprotect(memory, PAGE_BYTES, PROT_READ));
	EXPECT_EQ(-EBUSY, seal(self->fd));
	ASSERT_EQ(0, mprotect(memory, PAGE_BYTES, PROT_READ | PROT_WRITE));
	memory[0] = 1;
	ASSERT_EQ(0, hold(memory, ends));
	munmap(memory, PAGE_BYTES);
	EXPECT_EQ(-EBUSY, seal(self->fd));
	/* Refused, it is as if nothing had been. */
	memory = map_and_touch(self->fd, PAGES);
	EXPECT_NE(MAP_FAILED, memory);
	EXPECT_EQ(1, pwrite(self->fd, "", 1, 0));
	munmap(memory, LENGTH);
	let_go(ends);
	/* Who can only read does not matter. */
	memory = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, self->reader, 0);
	ASSERT_NE(MAP_FAILED, memory);
	EXPECT_EQ(0, memory[0]);
	EXPECT_EQ(0, seal(self->fd));
	EXPECT_EQ(-1, mprotect(memory, LENGTH, PROT_READ | PROT_WRITE));
	munmap(memory, LENGTH);
}

static int passed_fd;

static int seal_as_stranger(int device)
{
	CHECK(seal(passed_fd) == -EPERM);
	return 0;
}

TEST_F(seal, wants_the_owner)
{
	struct actmem_ioctl_seal arg = { .size = sizeof(arg), .flags = 1 };

	EXPECT_EQ(-EINVAL, call(self->fd, ACTMEM_IOC_SEAL, &arg));
	arg = (struct actmem_ioctl_seal){ .size = 4 };
	EXPECT_EQ(-EINVAL, call(self->fd, ACTMEM_IOC_SEAL, &arg));
	EXPECT_EQ(-EBADF, seal(self->reader));
	passed_fd = self->fd;
	EXPECT_EQ(0, as_user(OTHER_USER, seal_as_stranger, self->names.device));
	EXPECT_EQ(1, pwrite(self->fd, "", 1, 0));
	EXPECT_EQ(-ENOTTY, seal(self->names.device));
}

/* Writes in all ways that there are until it is told not to any more. */
struct writer {
	pthread_t thread;
	int fd;
	int way;
	int source;
	int last;
};

static int write_once(struct writer *writer, unsigned int number)
{
	struct actmem_ioctl_copy copy = {
		.size = sizeof(copy),
		.source_fd = writer->source,
		.source_offset = number % 4096,
		.length = PAGE_BYTES / 2,
		.offset = PAGE_BYTES,
	};

	switch (writer->way) {
	case 0:
		return pwrite(writer->fd, &number, sizeof(number), 2 * PAGE_BYTES) < 0 ? -errno : 0;
	case 1:
		return call(writer->fd, ACTMEM_IOC_COPY, &copy);
	default:
		if (number % 2)
			return populate(writer->fd, 0, 1);
		return discard(writer->fd, 0, 1);
	}
}

static void *write_on(void *context)
{
	struct writer *writer = context;
	unsigned int number = 0;

	/* With pauses, in which sealing finds nobody. */
	do {
		usleep(2000);
		writer->last = write_once(writer, ++number);
	} while (!writer->last || writer->last == -EBUSY);
	return NULL;
}

TEST_F(seal, nothing_is_written_afterwards)
{
	struct writer writers[3] = {};
	char *before = malloc(LENGTH), *after = malloc(LENGTH);
	int i, err, source = create_pages(self->names.device, 1);
	char pattern[PAGE_BYTES / 256];

	ASSERT_TRUE(before && after);
	for (i = 0; i < 256; i++) {
		memset(pattern, i, sizeof(pattern));
		ASSERT_EQ((ssize_t)sizeof(pattern),
			  pwrite(source, pattern, sizeof(pattern), i * sizeof(pattern)));
	}
	for (i = 0; i < 3; i++) {
		writers[i] = (struct writer){ .fd = self->fd, .way = i, .source = source };
		ASSERT_EQ(0, pthread_create(&writers[i].thread, NULL, write_on, &writers[i]));
	}
	do
		err = seal(self->fd);
	while (err == -EBUSY);
	EXPECT_EQ(0, err);
	EXPECT_EQ((ssize_t)LENGTH, pread(self->fd, before, LENGTH, 0));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, pthread_join(writers[i].thread, NULL));
		EXPECT_EQ(-EPERM, writers[i].last);
	}
	EXPECT_EQ((ssize_t)LENGTH, pread(self->fd, after, LENGTH, 0));
	EXPECT_EQ(0, memcmp(before, after, LENGTH));
	free(before);
	free(after);
	close(source);
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
