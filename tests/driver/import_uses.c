// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What is done to regions of memory that others made: copied, read and written,
 * filled by a disk, exported; and what becomes of that when their owner takes pages
 * away, or the hardware does.
 */
#include <linux/falloc.h>

#include "dmabuf_test.h"
#include "import_fixture.h"
#include "poison_test.h"

/* Bytes of each of three regions, of which the first was imported. */
struct model {
	int fd[3];
	unsigned char *memory[3];
	unsigned char *bytes[3];
};

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005 + 1442695040888963407;
	return *state >> 33;
}

static int copy_as_model(struct model *model, uint64_t *random)
{
	size_t length = next_random(random) % (next_random(random) % 2 ? BYTES : 9000) + 1;
	size_t to = next_random(random) % (BYTES - length + 1);
	size_t from = next_random(random) % (BYTES - length + 1);
	unsigned int into = next_random(random) % 3, out_of = (into + 1 + next_random(random) % 2) % 3;
	unsigned int mapped = next_random(random) % 3;

	memset(model->memory[mapped] + from, (int)length, length % 5000);
	memset(model->bytes[mapped] + from, (int)length, length % 5000);
	memcpy(model->bytes[into] + to, model->bytes[out_of] + from, length);
	return copy(model->fd[into], to, model->fd[out_of], from, length);
}

TEST_F(import, copied_as_others)
{
	int other = memfd_of(0, BYTES);
	struct model model = { .fd = {
		import_all(self->device, self->memory, BYTES),
		create_lazy(self->device, PAGES),
		import_all(self->device, other, BYTES),
	} };
	uint64_t random = 7;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		ASSERT_LE(0, model.fd[i]);
		model.bytes[i] = calloc(1, BYTES);
		model.memory[i] = (unsigned char *)map_bytes(model.fd[i], BYTES);
		ASSERT_NE(MAP_FAILED, model.memory[i]);
	}
	for (i = 0; i < 40; i++)
		ASSERT_EQ(0, copy_as_model(&model, &random));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, memcmp(model.memory[i], model.bytes[i], BYTES));
		munmap(model.memory[i], BYTES);
		close(model.fd[i]);
		free(model.bytes[i]);
	}
	close(other);
}

#define ODD	(PAGE_BYTES - 4099)
#define ODD_LENGTH	(PAGE_BYTES + 8200)

TEST_F(import, read_and_written_as_others)
{
	int fd = import_all(self->device, self->memory, BYTES);
	struct actmem_ioctl_seal seal = { .size = sizeof(seal) };
	char *theirs = map_bytes(self->memory, BYTES), *bytes = malloc(ODD_LENGTH);

	ASSERT_LE(0, fd);
	ASSERT_NE(MAP_FAILED, theirs);
	memset(bytes, 0x5a, ODD_LENGTH);
	EXPECT_EQ(ODD_LENGTH, pwrite(fd, bytes, ODD_LENGTH, ODD));
	EXPECT_EQ(0, theirs[ODD - 1]);
	EXPECT_TRUE(is_all(theirs + ODD, 0x5a, ODD_LENGTH));
	EXPECT_EQ(0, theirs[ODD + ODD_LENGTH]);
	memset(theirs, 0x33, BYTES);
	EXPECT_EQ(ODD_LENGTH, pread(fd, bytes, ODD_LENGTH, ODD));
	EXPECT_TRUE(is_all(bytes, 0x33, ODD_LENGTH));
	EXPECT_EQ(77, pread(fd, bytes, ODD_LENGTH, BYTES - 77));
	EXPECT_EQ(77, pwrite(fd, bytes, ODD_LENGTH, BYTES - 77));
	EXPECT_EQ(-1, pwrite(fd, bytes, 1, BYTES));
	EXPECT_EQ(EFBIG, errno);

	/* All of it is there, and stays. */
	EXPECT_EQ(ODD, lseek(fd, ODD, SEEK_DATA));
	EXPECT_EQ(BYTES, lseek(fd, ODD, SEEK_HOLE));
	EXPECT_EQ(0, fallocate(fd, 0, 0, BYTES));
	EXPECT_EQ(-1, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE_BYTES));
	EXPECT_EQ(EOPNOTSUPP, errno);
	EXPECT_EQ(-EOPNOTSUPP, call(fd, ACTMEM_IOC_SEAL, &seal));
	EXPECT_TRUE(is_all(theirs, 0x33, BYTES));
	free(bytes);
	munmap(theirs, BYTES);
	close(fd);
}

/* Where the file has its pages: at the ends of each of the region's. */
static int device_sees(int buffer, const char *expected, size_t bytes)
{
	struct importer_word word;
	struct importer_map map;
	int attachment;
	uint64_t seen;

	CHECK(!load_importer());
	attachment = attach_to(device_in(0), buffer);
	CHECK(attachment >= 0);
	CHECK(!map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	CHECK(map.bytes == bytes);
	for (word.offset = 0; word.offset < bytes; word.offset += PAGE_BYTES / 4 + 8) {
		memcpy(&seen, expected + word.offset, 8);
		CHECK(!call(attachment, IMPORTER_PEEK, &word));
		CHECK(word.before == seen);
	}
	word.offset = bytes - 8;
	word.value = 0x1234567890;
	CHECK(!call(attachment, IMPORTER_VMAP, &word));
	memcpy(&seen, expected + word.offset, 8);
	CHECK(seen == 0x1234567890);
	CHECK(!unmap_attachment(attachment));
	close(attachment);
	CHECK(!unload_importer());
	return 0;
}

TEST_F(import, exported_as_others)
{
	struct actmem_ioctl_import arg = import_of(self->memory, PAGE_BYTES, 3 * PAGE_BYTES);
	char *theirs = map_bytes(self->memory, BYTES), *shared, *odd;
	int fd, buffer;

	ASSERT_NE(MAP_FAILED, theirs);
	fd = import(self->device, &arg);
	ASSERT_LE(0, fd);
	mark(theirs, BYTES);
	buffer = export(fd, 1, 2);
	ASSERT_LE(0, buffer);
	EXPECT_EQ(2, pages_exported(fd));
	EXPECT_EQ(2, pages_pinned(fd));

	/* By its own file system, which has those of hugetlb aligned. */
	shared = map_buffer(buffer, 2);
	ASSERT_NE(MAP_FAILED, shared);
	EXPECT_EQ(0, memcmp(shared, theirs + 2 * PAGE_BYTES, 2 * PAGE_BYTES));
	memset(shared + PAGE_BYTES, 0x77, PAGE_BYTES);
	EXPECT_TRUE(is_all(theirs + 3 * PAGE_BYTES, 0x77, PAGE_BYTES));
	munmap(shared + PAGE_BYTES, PAGE_BYTES);
	odd = mmap(shared + PAGE_BYTES + 4096, PAGE_BYTES, PROT_READ,
		   MAP_SHARED | MAP_FIXED_NOREPLACE, buffer, 0);
	if (variant->flags & MFD_HUGETLB) {
		EXPECT_EQ(MAP_FAILED, odd);
		EXPECT_EQ(EINVAL, errno);
	} else {
		ASSERT_NE(MAP_FAILED, odd);
		EXPECT_EQ(0, memcmp(odd, theirs + 2 * PAGE_BYTES, PAGE_BYTES));
		munmap(odd, PAGE_BYTES);
	}
	if (!access(IMPORTER, R_OK))
		EXPECT_EQ(0, device_sees(buffer, theirs + 2 * PAGE_BYTES, 2 * PAGE_BYTES));

	/* The dma-buf is enough for all of it to stay, and so is a mapping of that. */
	close(fd);
	close(self->memory);
	self->memory = -1;
	munmap(theirs, BYTES);
	EXPECT_EQ(1, regions());
	EXPECT_EQ(3 * PAGE_BYTES, node_sum("region_bytes"));
	close(buffer);
	EXPECT_EQ(1, regions());
	munmap(shared, PAGE_BYTES);
	EXPECT_EQ(0, regions());
}

TEST_F(import, a_disk_reads_into_it)
{
	int fd = import_all(self->device, self->memory, BYTES);
	int disk = open("/dev/nvme0n1", O_RDWR | O_DIRECT | O_CLOEXEC);
	int ordinary = create_pages(self->device, PAGES);
	char *memory = map_bytes(fd, BYTES), *source = map_bytes(ordinary, BYTES);

	ASSERT_LE(0, disk);
	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_NE(MAP_FAILED, source);
	mark(source, BYTES);
	ASSERT_EQ(BYTES, pwrite(disk, source, BYTES, 0));
	ASSERT_EQ(BYTES, pread(disk, memory, BYTES, 0));
	EXPECT_TRUE(is_marked(memory, BYTES));
	munmap(source, BYTES);
	munmap(memory, BYTES);
	close(disk);
	close(ordinary);
	close(fd);
}

TEST_F(import, what_its_owner_takes_is_missed)
{
	int fd = import_all(self->device, self->memory, BYTES);
	int ordinary = create_pages(self->device, PAGES);
	char *memory = map_bytes(fd, BYTES);

	ASSERT_NE(MAP_FAILED, memory);
	memset(memory, 7, BYTES);
	ASSERT_EQ(0, fallocate(self->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       PAGE_BYTES, PAGE_BYTES));
	EXPECT_TRUE(is_all(memory + PAGE_BYTES, 0, PAGE_BYTES));
	EXPECT_TRUE(is_all(memory, 7, PAGE_BYTES));
	EXPECT_EQ(0, copy(ordinary, 0, fd, 0, PAGE_BYTES));
	EXPECT_EQ(-ESTALE, copy(ordinary, PAGE_BYTES, fd, PAGE_BYTES, PAGE_BYTES));
	EXPECT_EQ(-ESTALE, copy(fd, 2 * PAGE_BYTES - 1, ordinary, 0, 1));
	EXPECT_EQ(0, copy(fd, 2 * PAGE_BYTES, ordinary, 0, PAGE_BYTES));

	EXPECT_EQ(-1, pread(fd, memory, 8, PAGE_BYTES));
	EXPECT_EQ(ESTALE, errno);
	EXPECT_EQ(-ESTALE, export(fd, 0, PAGES));
	EXPECT_EQ(0, pages_exported(fd));

	ASSERT_EQ(0, ftruncate(self->memory, 2 * PAGE_BYTES));
	EXPECT_EQ(-ESTALE, copy(fd, 3 * PAGE_BYTES, ordinary, 0, 1));
	EXPECT_EQ(BYTES, node_sum("region_bytes") - BYTES);
	munmap(memory, BYTES);
	close(ordinary);
	close(fd);
}

/* Of small pages that alone: those who have it mapped, and who would read or export it. */
TEST_F(import, memory_that_fails)
{
	struct actmem_ioctl_copy arg;
	struct actmem_ioctl_info now;
	int fd, ordinary, buffer;
	char *memory, byte = 0;

	/* Others would be missing from hugetlb's pool in the tests to come. */
	if (variant->page_bytes != SMALL)
		return;
	fd = import_all(self->device, self->memory, BYTES);
	ordinary = create_pages(self->device, PAGES);
	memory = map_bytes(fd, BYTES);
	ASSERT_NE(MAP_FAILED, memory);
	memset(memory, 7, BYTES);
	poison(memory + PAGE_BYTES + 5 * SMALL);
	EXPECT_EQ(BUS_MCEERR_AR, touch(memory + PAGE_BYTES + 5 * SMALL, false));
	EXPECT_EQ(0, touch(memory + PAGE_BYTES + 4 * SMALL, false));
	arg = copy_of(0, fd, 0, BYTES);
	EXPECT_EQ(-EIO, call(ordinary, ACTMEM_IOC_COPY, &arg));
	EXPECT_EQ(PAGE_BYTES + 5 * SMALL, arg.done);
	EXPECT_EQ(ACTMEM_WHY_POISON, arg.why.reason);
	EXPECT_EQ(PAGE_BYTES, arg.why.wanted);
	EXPECT_EQ(-EIO, copy(fd, PAGE_BYTES + 5 * SMALL, ordinary, 0, 1));
	EXPECT_EQ(0, copy(ordinary, 0, fd, PAGE_BYTES + 6 * SMALL, PAGE_BYTES));
	EXPECT_EQ(-1, pread(fd, &byte, 1, PAGE_BYTES + 5 * SMALL));
	EXPECT_EQ(EIO, errno);
	EXPECT_EQ(-1, pwrite(fd, &byte, 1, PAGE_BYTES + 5 * SMALL));
	EXPECT_EQ(EIO, errno);
	EXPECT_EQ(-EIO, export(fd, 0, 2));
	buffer = export(fd, 2, 2);
	EXPECT_LE(0, buffer);
	close(buffer);
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(0, now.poisoned_bytes);
	EXPECT_EQ(0, now.exported_bytes);
	munmap(memory, BYTES);
	close(ordinary);
	close(fd);
}

/*
 * An error that a copy has survived is heard of by the driver alone, which tells the
 * kernel whose the page is. Again of small pages alone.
 */
TEST_F(import, memory_that_a_processor_reports)
{
	char *memory, byte;
	int fd, code;

	if (variant->page_bytes != SMALL)
		return;
	fd = import_all(self->device, self->memory, BYTES);
	memory = map_bytes(fd, BYTES);
	ASSERT_NE(MAP_FAILED, memory);
	memset(memory, 7, BYTES);
	ASSERT_EQ(0, report_mce(frame_of(memory + PAGE_BYTES + 5 * SMALL), MCE_UNCORRECTED));
	while (!(code = touch(memory + PAGE_BYTES + 5 * SMALL, false)))
		usleep(10000);
	EXPECT_EQ(BUS_MCEERR_AR, code);
	EXPECT_EQ(-1, pread(fd, &byte, 1, PAGE_BYTES + 5 * SMALL));
	EXPECT_EQ(EIO, errno);
	EXPECT_EQ(0, touch(memory + PAGE_BYTES + 4 * SMALL, false));
	EXPECT_EQ(0, touch(memory + PAGE_BYTES + 6 * SMALL, true));
	munmap(memory, BYTES);
	close(fd);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
