// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A device behind the IOMMU reads and writes a region: QEMU's edu, driven from
 * here through VFIO. `tests/vm/run --edu` puts one that can address 64 bits at
 * 00:10.0 and one that can address 28 at 00:11.0.
 */
#include <linux/vfio.h>

#include "device_test.h"

/* More at once than this, all of edu's own memory, makes QEMU abort. */
#define CHUNK	2048

#define EDU_BUFFER	0x40000
#define EDU_SOURCE	0x80
#define EDU_TARGET	0x88
#define EDU_COUNT	0x90
#define EDU_COMMAND	0x98
#define EDU_START	1
#define EDU_TO_MEMORY	2

#define PCI_COMMAND		4
#define PCI_COMMAND_MEMORY_AND_MASTER	6

FIXTURE(iommu_device)
{
	struct region region;
	volatile unsigned char *registers;
	size_t registers_length;
	uint64_t iova;
	int container;
	int group;
	int device;
};

FIXTURE_VARIANT(iommu_device)
{
	const char *name;
	uint64_t iova;
};

FIXTURE_VARIANT_ADD(iommu_device, bits_64)
{
	.name = "0000:00:10.0",
	.iova = 5ULL << 32,
};

FIXTURE_VARIANT_ADD(iommu_device, bits_28)
{
	.name = "0000:00:11.0",
	.iova = 0x1000000,
};

static int open_group(const char *device)
{
	char path[128], target[256];
	ssize_t length;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", device);
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return -1;
	target[length] = '\0';
	snprintf(path, sizeof(path), "/dev/vfio/%s", strrchr(target, '/') + 1);
	return open(path, O_RDWR | O_CLOEXEC);
}

FIXTURE_SETUP(iommu_device)
{
	struct vfio_region_info bar = {
		.argsz = sizeof(bar), .index = VFIO_PCI_BAR0_REGION_INDEX };
	struct vfio_region_info config = {
		.argsz = sizeof(config), .index = VFIO_PCI_CONFIG_REGION_INDEX };
	struct vfio_iommu_type1_dma_map dma = {
		.argsz = sizeof(dma), .flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE };
	uint16_t command = PCI_COMMAND_MEMORY_AND_MASTER;

	self->container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	ASSERT_GE(self->container, 0);
	self->group = open_group(variant->name);
	ASSERT_GE(self->group, 0);
	ASSERT_EQ(0, ioctl(self->group, VFIO_GROUP_SET_CONTAINER, &self->container));
	ASSERT_EQ(0, ioctl(self->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU));
	self->device = ioctl(self->group, VFIO_GROUP_GET_DEVICE_FD, variant->name);
	ASSERT_GE(self->device, 0);

	ASSERT_EQ(0, ioctl(self->device, VFIO_DEVICE_GET_REGION_INFO, &config));
	ASSERT_EQ((ssize_t)sizeof(command), pwrite(self->device, &command, sizeof(command),
						   config.offset + PCI_COMMAND));
	ASSERT_EQ(0, ioctl(self->device, VFIO_DEVICE_GET_REGION_INFO, &bar));
	self->registers_length = bar.size;
	self->registers = mmap(NULL, bar.size, PROT_READ | PROT_WRITE, MAP_SHARED,
			       self->device, bar.offset);
	ASSERT_NE(MAP_FAILED, self->registers);

	ASSERT_EQ(0, region_make(&self->region));
	self->iova = variant->iova;
	dma.vaddr = (uintptr_t)self->region.memory;
	dma.iova = self->iova;
	dma.size = LENGTH;
	ASSERT_EQ(0, ioctl(self->container, VFIO_IOMMU_MAP_DMA, &dma));
}

static int unmap_dma(int container, uint64_t iova)
{
	struct vfio_iommu_type1_dma_unmap unmap = {
		.argsz = sizeof(unmap), .iova = iova, .size = LENGTH };

	return ioctl(container, VFIO_IOMMU_UNMAP_DMA, &unmap);
}

FIXTURE_TEARDOWN(iommu_device)
{
	munmap((void *)self->registers, self->registers_length);
	region_drop(&self->region);
	close(self->device);
	close(self->group);
	close(self->container);
	EXPECT_TRUE(region_gone(&self->region));
}

static void write_register(volatile unsigned char *registers, unsigned int at, uint64_t value)
{
	*(volatile uint64_t *)(registers + at) = value;
}

static void transfer(volatile unsigned char *registers, uint64_t source, uint64_t target,
		     uint64_t command)
{
	write_register(registers, EDU_SOURCE, source);
	write_register(registers, EDU_TARGET, target);
	write_register(registers, EDU_COUNT, CHUNK);
	write_register(registers, EDU_COMMAND, EDU_START | command);
	while (*(volatile uint32_t *)(registers + EDU_COMMAND) & EDU_START)
		usleep(1000);
}

static void into_device(volatile unsigned char *registers, uint64_t iova)
{
	transfer(registers, iova, EDU_BUFFER, 0);
}

static void from_device(volatile unsigned char *registers, uint64_t iova)
{
	transfer(registers, EDU_BUFFER, iova, EDU_TO_MEMORY);
}

/* From the first page, through the device, to both sides of the edge between two pages. */
TEST_F(iommu_device, reads_and_writes)
{
	uint64_t source = PAGE_BYTES / 2 + CHUNK;
	uint64_t target = PAGE_BYTES - CHUNK / 2;
	size_t at;

	memset(self->region.memory, 0xa5, LENGTH);
	pattern_fill(self->region.memory + source, CHUNK, 1);
	into_device(self->registers, self->iova + source);
	from_device(self->registers, self->iova + target);
	EXPECT_TRUE(pattern_holds(self->region.memory + target, CHUNK, 1));
	EXPECT_TRUE(pattern_holds(self->region.memory + source, CHUNK, 1));
	for (at = 0; at < LENGTH; at++)
		if ((at < source || at >= source + CHUNK) &&
		    (at < target || at >= target + CHUNK))
			ASSERT_EQ(0xa5, self->region.memory[at]);
}

TEST_F(iommu_device, first_and_last_bytes)
{
	pattern_fill(self->region.memory, CHUNK, 2);
	into_device(self->registers, self->iova);
	from_device(self->registers, self->iova + LENGTH - CHUNK);
	EXPECT_TRUE(pattern_holds(self->region.memory + LENGTH - CHUNK, CHUNK, 2));
}

/* While the device may still write, the pages stay, and are counted. */
TEST_F(iommu_device, mapping_outlives_region)
{
	struct region other = { .fd = -1 };
	struct actmem_ioctl_info seen;
	struct vfio_iommu_type1_dma_map dma = {
		.argsz = sizeof(dma), .flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE };

	pattern_fill(self->region.memory, CHUNK, 3);
	region_drop(&self->region);
	ASSERT_EQ(0, region_info(&self->region, &seen));
	EXPECT_EQ(ACTMEM_INFO_LINGERING, seen.state & ACTMEM_INFO_LINGERING);
	EXPECT_EQ(LENGTH, seen.pinned_bytes);
	EXPECT_EQ(LENGTH, seen.allocated_bytes);

	ASSERT_EQ(0, region_make(&other));
	dma.vaddr = (uintptr_t)other.memory;
	dma.iova = self->iova + LENGTH;
	dma.size = LENGTH;
	ASSERT_EQ(0, ioctl(self->container, VFIO_IOMMU_MAP_DMA, &dma));
	into_device(self->registers, self->iova);
	from_device(self->registers, self->iova + LENGTH - CHUNK);
	into_device(self->registers, self->iova + LENGTH - CHUNK);
	from_device(self->registers, dma.iova);
	EXPECT_TRUE(pattern_holds(other.memory, CHUNK, 3));

	EXPECT_EQ(0, unmap_dma(self->container, self->iova));
	EXPECT_TRUE(region_gone(&self->region));
	EXPECT_EQ(0, unmap_dma(self->container, dma.iova));
	region_drop(&other);
	EXPECT_TRUE(region_gone(&other));
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
