// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A driver has a device behind the IOMMU transfer between dma-bufs of regions:
 * tests/vm/importer, bound to QEMU's edu instead of VFIO for as long as this
 * runs. `tests/vm/run --edu` puts one that can address 64 bits at 00:10.0 and
 * one that can address 28 at 00:11.0.
 */
#include "device_test.h"
#include "dmabuf_test.h"

/* More at once than this, all of edu's own memory, makes QEMU abort. */
#define CHUNK	2048

#define PAGES	5
#define SPAN	(PAGES * PAGE_BYTES)

/* One buffer that the device reads, and one that it writes. */
FIXTURE(edu)
{
	int device;
	int fds[2];
	int buffers[2];
	int attachments[2];
	unsigned char *memory[2];
};

FIXTURE_VARIANT(edu)
{
	unsigned int slot;
	unsigned int bits;
};

FIXTURE_VARIANT_ADD(edu, bits_64)
{
	.slot = 0x10,
	.bits = 64,
};

FIXTURE_VARIANT_ADD(edu, bits_28)
{
	.slot = 0x11,
	.bits = 28,
};

/* Has a driver of this name take the device in place of that which has it. */
static int bind_to(unsigned int slot, const char *driver)
{
	char path[128], name[32];

	snprintf(name, sizeof(name), "0000:00:%02x.0", slot);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver/unbind", name);
	CHECK(!put(path, name));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver_override", name);
	CHECK(!put(path, driver));
	CHECK(!put("/sys/bus/pci/drivers_probe", name));
	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/%s/%s", driver, name);
	CHECK(!access(path, F_OK));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver_override", name);
	CHECK(!put(path, "\n"));
	return 0;
}

FIXTURE_SETUP(edu)
{
	struct importer_attach arg = device_in(variant->slot);
	int i;

	arg.mask_bits = variant->bits;
	ASSERT_EQ(0, load_module(IMPORTER));
	ASSERT_EQ(0, bind_to(variant->slot, "importer"));
	self->device = open_device();
	ASSERT_LE(0, self->device);
	for (i = 0; i < 2; i++) {
		self->fds[i] = create_pages(self->device, PAGES);
		ASSERT_LE(0, self->fds[i]);
		self->buffers[i] = export(self->fds[i], 0, PAGES);
		ASSERT_LE(0, self->buffers[i]);
		self->memory[i] = map(self->fds[i], PAGES);
		ASSERT_NE(MAP_FAILED, self->memory[i]);
		self->attachments[i] = attach_to(arg, self->buffers[i]);
		ASSERT_LE(0, self->attachments[i]);
	}
}

FIXTURE_TEARDOWN(edu)
{
	int i;

	for (i = 0; i < 2; i++) {
		munmap(self->memory[i], SPAN);
		close(self->attachments[i]);
		close(self->buffers[i]);
		close(self->fds[i]);
	}
	EXPECT_EQ(0, regions());
	close(self->device);
	EXPECT_EQ(0, bind_to(variant->slot, "vfio-pci"));
	EXPECT_EQ(0, unload_module("importer"));
}

static int move(int to, uint64_t at, int from, uint64_t source)
{
	struct importer_move arg = {
		.source_fd = from, .length = CHUNK, .from = source, .to = at,
	};

	return call(to, IMPORTER_MOVE, &arg);
}

/* Reads by one mapping and writes by another, across the edge between two pages. */
TEST_F(edu, transfers)
{
	const uint64_t source = SPAN - CHUNK, target = 2 * PAGE_BYTES - CHUNK / 2;
	struct dma_buf_sync sync = { .flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ };
	struct importer_map from, to;
	size_t at;

	ASSERT_EQ(0, map_attachment(self->attachments[0], IMPORTER_TO_DEVICE, &from));
	ASSERT_EQ(0, map_attachment(self->attachments[1], IMPORTER_FROM_DEVICE, &to));
	/* To the device, all of it is one segment, wherever the pages are. */
	TH_LOG("%u bits: %u pieces, %u segments, of %llu bytes at most", variant->bits,
	       from.pieces, from.segments, (unsigned long long)from.largest);
	EXPECT_EQ(1, from.segments);
	EXPECT_EQ(1, to.segments);
	EXPECT_EQ(SPAN, from.largest);
	EXPECT_GE(PAGES, from.pieces);
	EXPECT_EQ(0, variant->bits < 64 && from.highest >> variant->bits);
	EXPECT_EQ(0, variant->bits < 64 && to.highest >> variant->bits);

	pattern_fill(self->memory[0] + source, CHUNK, 1);
	memset(self->memory[1], 0xa5, SPAN);
	ASSERT_EQ(0, move(self->attachments[1], target, self->attachments[0], source));
	EXPECT_EQ(0, call(self->buffers[1], DMA_BUF_IOCTL_SYNC, &sync));
	EXPECT_TRUE(pattern_holds(self->memory[1] + target, CHUNK, 1));
	for (at = 0; at < SPAN; at += at == target - 1 ? CHUNK + 1 : 1)
		if (self->memory[1][at] != 0xa5)
			break;
	EXPECT_EQ(SPAN, at);
	sync.flags = DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ;
	EXPECT_EQ(0, call(self->buffers[1], DMA_BUF_IOCTL_SYNC, &sync));
}

/* It goes on with nothing left but the attachments. */
TEST_F(edu, transfers_of_their_own)
{
	struct importer_map mapped;
	int i;

	pattern_fill(self->memory[0], CHUNK, 2);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, map_attachment(self->attachments[i], IMPORTER_BIDIRECTIONAL, &mapped));
		munmap(self->memory[i], SPAN);
		close(self->buffers[i]);
	}
	close(self->fds[0]);
	ASSERT_EQ(0, move(self->attachments[1], 3 * PAGE_BYTES, self->attachments[0], 0));
	self->memory[1] = map(self->fds[1], PAGES);
	ASSERT_NE(MAP_FAILED, self->memory[1]);
	EXPECT_TRUE(pattern_holds(self->memory[1] + 3 * PAGE_BYTES, CHUNK, 2));
}

/* Otherwise, the device could reach the page after another tenant has got it. */
TEST_F(edu, cannot_reach_what_is_unmapped)
{
	struct importer_map mapped;

	ASSERT_EQ(0, map_attachment(self->attachments[0], IMPORTER_BIDIRECTIONAL, &mapped));
	EXPECT_EQ(-EBUSY, call(self->attachments[0], IMPORTER_GONE, NULL));
	ASSERT_EQ(0, unmap_attachment(self->attachments[0]));
	EXPECT_EQ(0, call(self->attachments[0], IMPORTER_GONE, NULL));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
