// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * dma-bufs as drivers have them: by tests/vm/importer with devices that no
 * IOMMU translates for, so that an address of its is where the memory is.
 */
#include "dmabuf_test.h"

#define PAGES	6
/* Devices that are none. */
#define PLAIN	0
#define NARROW	1

FIXTURE(import)
{
	int device;
	int fd;
	int buffer;
	char *memory;
};

FIXTURE_SETUP(import)
{
	if (access(IMPORTER, R_OK))
		SKIP(return, "no " IMPORTER " for this kernel");
	ASSERT_EQ(0, load_module(IMPORTER));
	self->device = open_device();
	self->fd = must(create_pages(self->device, PAGES));
	self->memory = mapped(map_and_touch(self->fd, PAGES));
	self->buffer = must(export(self->fd, 1, PAGES - 1));
}

FIXTURE_TEARDOWN(import)
{
	if (access(IMPORTER, R_OK))
		return;
	munmap(self->memory, PAGES * PAGE_BYTES);
	close(self->fd);
	close(self->buffer);
	EXPECT_EQ(0, regions());
	close(self->device);
	EXPECT_EQ(0, unload_module("importer"));
}

/* Bytes at both ends of each page, which the device finds where the region has them. */
static int device_sees(const char *memory, int attachment, size_t pages)
{
	struct importer_word word;
	uint64_t expected;
	size_t i;

	for (i = 0; i < 2 * pages; i++) {
		word.offset = (i + 1) / 2 * PAGE_BYTES - (i % 2 ? 8 : 0);
		memcpy(&expected, memory + word.offset, 8);
		CHECK(!call(attachment, IMPORTER_PEEK, &word));
		CHECK(word.before == expected);
	}
	return 0;
}

static void mark_words(char *memory, size_t pages, uint64_t seed)
{
	size_t at;

	for (at = 0; at < pages * PAGE_BYTES; at += 8) {
		uint64_t word = seed + at * 0x9e3779b97f4a7c15ULL;

		memcpy(memory + at, &word, 8);
	}
}

/* Whole pages, or parts no longer than the device takes nor across what it does not cross. */
TEST_F(import, by_segments_that_the_device_takes)
{
	static const struct {
		uint32_t max_segment;
		uint64_t boundary;
		uint64_t segment;
	} limits[] = {
		{ UINT32_MAX, UINT64_MAX, PAGE_BYTES },
		{ PAGE_BYTES, UINT32_MAX, PAGE_BYTES },
		{ PAGE_BYTES - 1, UINT32_MAX, PAGE_BYTES / 2 },
		{ UINT32_MAX, PAGE_BYTES - 1, PAGE_BYTES },
		{ UINT32_MAX, 65535, 65536 },
		{ 65536, UINT32_MAX, 65536 },
		{ 12288, 16383, 8192 },
		{ 4096, UINT32_MAX, 4096 },
	};
	char *shared = self->memory + PAGE_BYTES;
	struct importer_attach arg;
	struct importer_map map;
	int attachment;
	size_t i;

	mark_words(shared, PAGES - 1, 2);
	for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		arg = device_in(PLAIN);
		arg.max_segment = limits[i].max_segment;
		arg.boundary = limits[i].boundary;
		attachment = must(attach_to(arg, self->buffer));
		ASSERT_EQ(0, map_attachment(attachment, IMPORTER_TO_DEVICE, &map));
		EXPECT_EQ(limits[i].segment, map.largest)
			TH_LOG("limit %zu", i);
		EXPECT_EQ(limits[i].segment, map.smallest)
			TH_LOG("limit %zu", i);
		EXPECT_EQ((PAGES - 1) * PAGE_BYTES, map.bytes);
		EXPECT_EQ(0, device_sees(shared, attachment, PAGES - 1));
		close(attachment);
	}
	arg = device_in(PLAIN);
	arg.max_segment = 4095;
	attachment = must(attach_to(arg, self->buffer));
	EXPECT_EQ(-EINVAL, map_attachment(attachment, IMPORTER_TO_DEVICE, &map));
	close(attachment);
}

/* One device has it more than once, whichever way it asks for; each ends by itself. */
TEST_F(import, mapped_more_than_once)
{
	char *shared = self->memory + PAGE_BYTES;
	int attachment = must(attach_to(device_in(PLAIN), self->buffer));
	struct importer_map map;

	mark_words(shared, PAGES - 1, 3);
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_TO_DEVICE, &map));
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_FROM_DEVICE, &map));
	EXPECT_EQ(0, device_sees(shared, attachment, PAGES - 1));
	EXPECT_EQ(0, unmap_attachment(attachment));
	EXPECT_EQ(0, device_sees(shared, attachment, PAGES - 1));
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	EXPECT_EQ(0, device_sees(shared, attachment, PAGES - 1));
	close(attachment);
}

/* Two devices have it at once, each in its own way; the CPU's accesses are told to both. */
TEST_F(import, attached_more_than_once)
{
	struct dma_buf_sync sync = { .flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW };
	struct importer_attach narrow = device_in(NARROW);
	struct importer_map map;
	int one = must(attach_to(device_in(PLAIN), self->buffer)), other;

	narrow.max_segment = 65536;
	other = must(attach_to(narrow, self->buffer));
	ASSERT_EQ(0, map_attachment(one, IMPORTER_BIDIRECTIONAL, &map));
	EXPECT_EQ(0, map.smallest % PAGE_BYTES);
	ASSERT_EQ(0, map_attachment(other, IMPORTER_TO_DEVICE, &map));
	EXPECT_EQ(65536, map.largest);
	EXPECT_EQ(0, call(self->buffer, DMA_BUF_IOCTL_SYNC, &sync));
	mark_words(self->memory + PAGE_BYTES, PAGES - 1, 4);
	sync.flags = DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW;
	EXPECT_EQ(0, call(self->buffer, DMA_BUF_IOCTL_SYNC, &sync));
	EXPECT_EQ(0, device_sees(self->memory + PAGE_BYTES, one, PAGES - 1));
	EXPECT_EQ(0, detach(one));
	EXPECT_EQ(0, device_sees(self->memory + PAGE_BYTES, other, PAGES - 1));
	close(one);
	close(other);
}

/* With no descriptor of the dma-buf left. */
TEST_F(import, pages_stay_as_long_as_the_importer)
{
	struct importer_map map;
	int attachment = must(attach_to(device_in(PLAIN), self->buffer));

	close(self->buffer);
	EXPECT_EQ(PAGES - 1, pages_exported(self->fd));
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	mark_words(self->memory, PAGES, 7);
	EXPECT_EQ(-EBUSY, discard(self->fd, 0, PAGES));
	EXPECT_EQ(PAGES - 1, pages_held(self->fd));
	EXPECT_EQ(PAGES - 1, pages_pinned(self->fd));
	EXPECT_EQ(0, device_sees(self->memory + PAGE_BYTES, attachment, PAGES - 1));
	EXPECT_EQ(0, unmap_attachment(attachment));
	EXPECT_EQ(-EBUSY, discard(self->fd, 0, PAGES));
	EXPECT_EQ(0, detach(attachment));
	EXPECT_EQ(0, pages_exported(self->fd));
	EXPECT_EQ(0, discard_patiently(self->fd, 0, PAGES));
	EXPECT_EQ(0, pages_held(self->fd));
	close(attachment);
}

/* It has no cgroup that could be charged, and no cpuset. */
TEST_F(import, a_kernel_thread_allocates_no_page)
{
	int lazy = must(create_lazy(self->device, 2));
	char *memory = mapped(map(lazy, 2));
	int device = must(open(IMPORTER_DEVICE, O_RDWR | O_CLOEXEC));
	uint64_t address = (uintptr_t)memory;

	memory[0] = 2;
	EXPECT_EQ(0, call(device, IMPORTER_TOUCH, &address));
	EXPECT_EQ(1, memory[0]);
	address += PAGE_BYTES;
	EXPECT_EQ(-EFAULT, call(device, IMPORTER_TOUCH, &address));
	EXPECT_EQ(1, pages_held(lazy));
	memory[PAGE_BYTES] = 2;
	EXPECT_EQ(0, call(device, IMPORTER_TOUCH, &address));
	EXPECT_EQ(1, memory[PAGE_BYTES]);
	munmap(memory, 2 * PAGE_BYTES);
	close(device);
	close(lazy);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
