// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * dma-bufs as drivers have them: by tests/vm/importer with devices that no
 * IOMMU translates for, so that an address of its is where the memory is.
 */
#include "dmabuf_test.h"
#include "trace_test.h"

#define PAGES	6
/* Devices that are none. */
#define PLAIN	0
#define NARROW	1

#define NAME	"shared"

FIXTURE(import)
{
	int device;
	int fd;
	int buffer;
	char *memory;
	uint64_t id;
};

FIXTURE_SETUP(import)
{
	struct actmem_ioctl_create arg = region_of(PAGES);

	if (access(IMPORTER, R_OK))
		SKIP(return, "no " IMPORTER " for this kernel");
	ASSERT_EQ(0, load_importer());
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	strcpy(arg.name, NAME);
	self->fd = create(self->device, &arg);
	ASSERT_LE(0, self->fd);
	self->id = arg.id;
	self->memory = map_and_touch(self->fd, PAGES);
	ASSERT_NE(MAP_FAILED, self->memory);
	self->buffer = export(self->fd, 1, PAGES - 1);
	ASSERT_LE(0, self->buffer);
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
	EXPECT_EQ(0, unload_importer());
}

static uint64_t frame_of(const char *memory)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (fd < 0 || pread(fd, &entry, 8, (uintptr_t)memory / 4096 * 8) != 8)
		entry = 0;
	close(fd);
	return entry & ((1ULL << 55) - 1);
}

/* In how many pieces the pages lie in memory, and the longest of them in pages. */
static unsigned int count_runs(const char *memory, size_t pages, size_t *longest)
{
	unsigned int runs = 1;
	size_t i, length = 1;

	*longest = 1;
	for (i = 1; i < pages; i++) {
		bool goes_on = frame_of(memory + i * PAGE_BYTES) ==
			       frame_of(memory + (i - 1) * PAGE_BYTES) + 512;

		runs += !goes_on;
		length = goes_on ? length + 1 : 1;
		if (length > *longest)
			*longest = length;
	}
	return runs;
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

/* What lies side by side is one segment, as long as it may be. */
TEST_F(import, by_large_segments)
{
	char *shared = self->memory + PAGE_BYTES;
	struct importer_map map;
	unsigned int runs;
	size_t longest;
	int attachment = attach_to(device_in(PLAIN), self->buffer);

	ASSERT_LE(0, attachment);
	mark_words(shared, PAGES - 1, 1);
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	runs = count_runs(shared, PAGES - 1, &longest);
	EXPECT_EQ(runs, map.pieces);
	EXPECT_EQ(runs, map.segments);
	EXPECT_EQ(longest * PAGE_BYTES, map.largest);
	EXPECT_EQ(0, map.smallest % PAGE_BYTES);
	EXPECT_EQ((PAGES - 1) * PAGE_BYTES, map.bytes);
	EXPECT_EQ(0, device_sees(shared, attachment, PAGES - 1));
	EXPECT_EQ(0, unmap_attachment(attachment));
	close(attachment);
}

/* Not longer than the device takes them, nor across what it does not cross. */
TEST_F(import, by_segments_that_the_device_takes)
{
	static const struct {
		uint32_t max_segment;
		uint64_t boundary;
		uint64_t largest;
		uint64_t smallest;
	} limits[] = {
		{ 65536, UINT32_MAX, 65536, 65536 },
		{ 4096, UINT32_MAX, 4096, 4096 },
		{ 2 * 4096 - 1, UINT32_MAX, 4096, 4096 },
		{ 3 * PAGE_BYTES / 2, UINT32_MAX, PAGE_BYTES, PAGE_BYTES },
		{ PAGE_BYTES, UINT32_MAX, PAGE_BYTES, PAGE_BYTES },
		{ PAGE_BYTES - 1, UINT32_MAX, PAGE_BYTES - 4096, 4096 },
		{ UINT32_MAX, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES },
		{ UINT32_MAX, 65535, 65536, 65536 },
		{ 12288, 16383, 12288, 4096 },
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
		attachment = attach_to(arg, self->buffer);
		ASSERT_LE(0, attachment);
		ASSERT_EQ(0, map_attachment(attachment, IMPORTER_TO_DEVICE, &map));
		EXPECT_EQ(limits[i].largest, map.largest)
			TH_LOG("limit %zu", i);
		EXPECT_EQ(limits[i].smallest, map.smallest)
			TH_LOG("limit %zu", i);
		EXPECT_EQ((PAGES - 1) * PAGE_BYTES, map.bytes);
		EXPECT_EQ(0, device_sees(shared, attachment, PAGES - 1));
		close(attachment);
	}
	arg = device_in(PLAIN);
	arg.max_segment = 4095;
	EXPECT_EQ(-EINVAL, attach_to(arg, self->buffer));
	arg = device_in(PLAIN);
	arg.boundary = 2047;
	EXPECT_EQ(-EINVAL, attach_to(arg, self->buffer));
}

TEST_F(import, mapped_more_than_once)
{
	char *shared = self->memory + PAGE_BYTES;
	struct importer_map map, again;
	int attachment = attach_to(device_in(PLAIN), self->buffer);

	ASSERT_LE(0, attachment);
	mark_words(shared, PAGES - 1, 3);
	/* One way, as often as wanted; the other only once nobody has it mapped. */
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_TO_DEVICE, &map));
	EXPECT_EQ(-EBUSY, map_attachment(attachment, IMPORTER_FROM_DEVICE, &again));
	EXPECT_EQ(-EBUSY, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &again));
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_TO_DEVICE, &again));
	EXPECT_EQ(map.segments, again.segments);
	EXPECT_EQ(map.highest, again.highest);
	EXPECT_EQ(0, unmap_attachment(attachment));
	EXPECT_EQ(-EBUSY, map_attachment(attachment, IMPORTER_FROM_DEVICE, &again));
	EXPECT_EQ(0, device_sees(shared, attachment, PAGES - 1));
	EXPECT_EQ(0, unmap_attachment(attachment));
	/* Both ways is good for either. */
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	EXPECT_EQ(0, map_attachment(attachment, IMPORTER_TO_DEVICE, &again));
	EXPECT_EQ(0, map_attachment(attachment, IMPORTER_FROM_DEVICE, &again));
	EXPECT_EQ(0, unmap_attachment(attachment));
	EXPECT_EQ(0, unmap_attachment(attachment));
	EXPECT_EQ(0, device_sees(shared, attachment, PAGES - 1));
	EXPECT_EQ(0, unmap_attachment(attachment));
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_FROM_DEVICE, &again));
	close(attachment);
}

/* Two devices have it at once, each in its own way; the CPU's accesses are told to both. */
TEST_F(import, attached_more_than_once)
{
	struct dma_buf_sync sync = { .flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW };
	struct importer_attach narrow = device_in(NARROW);
	struct importer_map map;
	int one = attach_to(device_in(PLAIN), self->buffer), other;

	narrow.max_segment = 65536;
	other = attach_to(narrow, self->buffer);
	ASSERT_LE(0, one);
	ASSERT_LE(0, other);
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

TEST_F(import, read_only)
{
	int buffer = export_as(self->fd, 0, 2, ACTMEM_EXPORT_READ_ONLY), attachment;
	struct importer_word word = { .offset = 8, .value = 1 };
	struct importer_map map;

	ASSERT_LE(0, buffer);
	attachment = attach_to(device_in(PLAIN), buffer);
	ASSERT_LE(0, attachment);
	EXPECT_EQ(-EACCES, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	EXPECT_EQ(-EACCES, map_attachment(attachment, IMPORTER_FROM_DEVICE, &map));
	EXPECT_EQ(-EINVAL, call(attachment, IMPORTER_VMAP, &word));
	mark_words(self->memory, 2, 5);
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_TO_DEVICE, &map));
	EXPECT_EQ(0, device_sees(self->memory, attachment, 2));
	close(attachment);
	close(buffer);
}

TEST_F(import, mapped_by_the_kernel)
{
	int attachment = attach_to(device_in(PLAIN), self->buffer);
	char *shared = self->memory + PAGE_BYTES;
	struct importer_word word;
	uint64_t seen;
	size_t i;

	ASSERT_LE(0, attachment);
	mark_words(shared, PAGES - 1, 6);
	for (i = 0; i < PAGES - 1; i++) {
		word.offset = i * PAGE_BYTES + i * 12288;
		word.value = ~i;
		memcpy(&seen, shared + word.offset, 8);
		ASSERT_EQ(0, call(attachment, IMPORTER_VMAP, &word));
		EXPECT_EQ(seen, word.before);
		memcpy(&seen, shared + word.offset, 8);
		EXPECT_EQ(~i, seen);
	}
	close(attachment);
}

/* Below 16 MiB there is no page of a region. */
TEST_F(import, not_by_bounce_buffers)
{
	struct importer_attach arg = device_in(PLAIN);
	struct importer_map map;
	int attachment, log = open_log();

	ASSERT_LE(0, log);
	arg.mask_bits = 24;
	attachment = attach_to(arg, self->buffer);
	ASSERT_LE(0, attachment);
	EXPECT_EQ(-EOPNOTSUPP, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	EXPECT_STREQ(text("actmem: platform importer.0 cannot map a dma-buf of region %llu '" NAME "': its DMA mask 0xffffff does not reach all the pages, which would be copied through bounce buffers; have an IOMMU translate for it (intel_iommu=on)",
			  (unsigned long long)self->id), read_log(log, "actmem: "));
	/* The kernel's own mapping needs no device. */
	EXPECT_EQ(0, call(attachment, IMPORTER_VMAP, &(struct importer_word){ .offset = 0 }));
	EXPECT_EQ(0, detach(attachment));
	close(attachment);
	attachment = attach_to(device_in(PLAIN), self->buffer);
	ASSERT_LE(0, attachment);
	EXPECT_EQ(0, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	close(attachment);
	close(log);
}

/* With no descriptor of the dma-buf left. */
TEST_F(import, pages_stay_as_long_as_the_importer)
{
	struct importer_map map;
	int attachment = attach_to(device_in(PLAIN), self->buffer);

	ASSERT_LE(0, attachment);
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

enum { REGION, BUFFER, ATTACHMENT, HOLDERS };

/* The region is alive, not lingering, as long as any of them is, in each order. */
TEST_F(import, ends_in_any_order)
{
	struct importer_word word = { .offset = 3 * 4096 };
	int fds[HOLDERS], number, i, which;
	struct importer_map map;
	unsigned int left;

	for (number = 0; number < 12; number++) {
		int rest = number / 2;

		fds[REGION] = create_lazy(self->device, PAGES);
		fds[BUFFER] = export(fds[REGION], 0, PAGES);
		fds[ATTACHMENT] = attach_to(device_in(PLAIN), fds[BUFFER]);
		ASSERT_LE(0, fds[ATTACHMENT]);
		if (number % 2)
			ASSERT_EQ(0, map_attachment(fds[ATTACHMENT], IMPORTER_TO_DEVICE, &map));
		left = (1 << HOLDERS) - 1;
		for (i = 0; i < HOLDERS; i++) {
			int skip = rest % (HOLDERS - i);

			rest /= HOLDERS - i;
			for (which = 0; !(left & 1 << which) || skip--; which++)
				;
			EXPECT_EQ(2, regions());
			EXPECT_EQ(0, lingering_regions());
			if (left & 1 << ATTACHMENT && number % 2)
				EXPECT_EQ(0, call(fds[ATTACHMENT], IMPORTER_PEEK, &word));
			close(fds[which]);
			left &= ~(1 << which);
		}
		EXPECT_EQ(1, regions())
			TH_LOG("order %d", number);
	}
	EXPECT_EQ((long)(PAGES * PAGE_BYTES), node_sum("region_bytes"));
}

static int hold_import(void *device)
{
	struct importer_map map;
	int fd = create_pages(*(int *)device, PAGES), attachment;

	CHECK(fd >= 0);
	attachment = attach_to(device_in(PLAIN), export(fd, 0, PAGES));
	CHECK(attachment >= 0);
	CHECK(!map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	return 0;
}

TEST_F(import, ends_with_its_process)
{
	pid_t child = hold_in_child(hold_import, &self->device);

	ASSERT_LT(0, child);
	EXPECT_EQ(2, regions());
	ASSERT_EQ(0, kill_child(child));
	EXPECT_EQ(1, regions());
	EXPECT_EQ((long)(PAGES * PAGE_BYTES), node_sum("region_bytes"));
}

TEST_F(import, keeps_the_module)
{
	struct importer_map map;
	int attachment = attach_to(device_in(PLAIN), self->buffer);

	ASSERT_LE(0, attachment);
	ASSERT_EQ(0, map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map));
	munmap(self->memory, PAGES * PAGE_BYTES);
	close(self->fd);
	close(self->buffer);
	close(self->device);
	EXPECT_EQ(-1, syscall(SYS_delete_module, "actmem", O_NONBLOCK));
	EXPECT_EQ(EAGAIN, errno);
	close(attachment);
	EXPECT_EQ(0, number_in("/sys/module/actmem/refcnt"));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
