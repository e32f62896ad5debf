// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A region of a page of 1 GiB, imported from hugetlb: mapped by one entry, copied
 * and pinned. The machine must have such pages and 1 GiB to spare for one.
 */
#include <liburing.h>

#include "dmabuf_test.h"
#include "import_test.h"

#define NUMBER	HUGE_PAGES("1048576") "nr_hugepages"
#define FREE	HUGE_PAGES("1048576") "free_hugepages"

FIXTURE(import_gib)
{
	int device;
	int memory;
	int fd;
	uint64_t id;
};

FIXTURE_SETUP(import_gib)
{
	struct actmem_ioctl_import arg;

	ASSERT_EQ(0, put(NUMBER, "1"));
	ASSERT_EQ(1, number_in(FREE));
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	self->memory = memfd_of(MFD_HUGETLB | MFD_HUGE_1GB, GIB);
	ASSERT_LE(0, self->memory);
	arg = import_of(self->memory, 0, GIB);
	self->fd = import(self->device, &arg);
	ASSERT_LE(0, self->fd);
	self->id = arg.id;
	ASSERT_EQ(GIB, arg.page_bytes);
	ASSERT_EQ(0, number_in(FREE));
}

FIXTURE_TEARDOWN(import_gib)
{
	close(self->fd);
	close(self->memory);
	close(self->device);
	EXPECT_EQ(0, regions());
	EXPECT_EQ(1, number_in(FREE));
	EXPECT_EQ(0, put(NUMBER, "0"));
}

static void expect_all_of(struct __test_metadata *_metadata, int fd, uint64_t id, size_t mapped,
			  size_t pinned)
{
	struct actmem_ioctl_info now;

	ASSERT_EQ(0, info(fd, id, &now));
	EXPECT_EQ(GIB, now.length);
	EXPECT_EQ(GIB, now.allocated_bytes);
	EXPECT_EQ(GIB, now.imported_page_bytes);
	EXPECT_EQ(mapped, now.mapped_bytes);
	EXPECT_EQ(pinned, now.pinned_bytes);
	EXPECT_EQ(GIB, node_sum("region_bytes"));
}

TEST_F(import_gib, one_page)
{
	const size_t far = GIB - PAGE_BYTES - 77, length = PAGE_BYTES + 77;
	struct actmem_ioctl_import arg;
	struct io_uring ring;
	int ordinary, buffer;
	struct iovec vector;
	char *memory, *source;

	expect_all_of(_metadata, self->fd, 0, 0, 0);
	arg = import_of(self->memory, 0, GIB / 2);
	EXPECT_EQ(-EINVAL, import(self->device, &arg));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, self->fd, 0));
	memory = map_bytes(self->fd, GIB);
	ASSERT_NE(MAP_FAILED, memory);
	EXPECT_EQ(0, (uintptr_t)memory % GIB);
	memory[GIB - 1] = 1;
	EXPECT_EQ(GIB / 1024, (size_t)smaps_bytes(memory, GIB, "KernelPageSize") / 1024);
	expect_all_of(_metadata, self->fd, 0, GIB, 0);

	/* Copied at its end, from an ordinary region. */
	ordinary = create_pages(self->device, 2);
	source = map(ordinary, 2);
	ASSERT_NE(MAP_FAILED, source);
	mark(source, 2 * PAGE_BYTES);
	EXPECT_EQ(0, copy(self->fd, far, ordinary, 11, length));
	EXPECT_EQ(0, memcmp(memory + far, source + 11, length));
	EXPECT_EQ(0, memory[far - 1]);
	EXPECT_EQ(0, copy(ordinary, 0, self->fd, far, length));
	EXPECT_EQ(0, memcmp(memory + far, source, length));
	munmap(source, 2 * PAGE_BYTES);
	close(ordinary);

	/* Exported by parts and as a whole, of which that alone can be mapped. */
	buffer = export(self->fd, 1, 1);
	ASSERT_LE(0, buffer);
	expect_all_of(_metadata, self->fd, 0, GIB, GIB);
	EXPECT_EQ(1, pages_exported(self->fd));
	EXPECT_EQ(MAP_FAILED, map_buffer(buffer, 1));
	EXPECT_EQ(EINVAL, errno);
	close(buffer);
	expect_all_of(_metadata, self->fd, 0, GIB, 0);
	buffer = export(self->fd, 0, GIB / PAGE_BYTES);
	ASSERT_LE(0, buffer);
	memory[3 * PAGE_BYTES] = 3;
	munmap(memory, GIB);
	EXPECT_EQ(memory, mmap(memory, GIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
			       buffer, 0));
	EXPECT_EQ(3, memory[3 * PAGE_BYTES]);
	close(buffer);
	expect_all_of(_metadata, self->fd, 0, GIB, 0);

	/* Pinned as a whole, and kept for that. */
	vector = (struct iovec){ memory + 3 * PAGE_BYTES, 8192 };
	ASSERT_EQ(0, io_uring_queue_init(4, &ring, 0));
	ASSERT_EQ(0, io_uring_register_buffers(&ring, &vector, 1));
	expect_all_of(_metadata, self->fd, 0, GIB, GIB);
	munmap(memory, GIB);
	close(self->fd);
	self->fd = -1;
	EXPECT_EQ(1, lingering_regions());
	expect_all_of(_metadata, self->device, self->id, 0, GIB);
	EXPECT_EQ(GIB, node_sum("lingering_bytes"));
	io_uring_unregister_buffers(&ring);
	io_uring_queue_exit(&ring);
	while (regions())
		usleep(10000);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
