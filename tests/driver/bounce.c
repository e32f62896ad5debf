// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Where the kernel has all DMA go through bounce buffers (swiotlb=force), no
 * device maps a dma-buf, and the kernel's log says why; programs do.
 */
#include "dmabuf_test.h"
#include "trace_test.h"

#define PAGES	3

static bool is_forced(void)
{
	char line[4096] = "";
	FILE *file = fopen("/proc/cmdline", "re");
	bool forced = file && fgets(line, sizeof(line), file) && strstr(line, "swiotlb=force");

	if (file)
		fclose(file);
	return forced;
}

TEST_F(driver, no_device_maps_it)
{
	struct actmem_ioctl_create arg = region_of(PAGES);
	struct importer_map map;
	int buffer, attachment, log = open_log();
	char *memory;

	ASSERT_TRUE(is_forced());
	ASSERT_LE(0, log);
	ASSERT_EQ(0, load_importer());
	strcpy(arg.name, "shared");
	ASSERT_LE(0, create(self->device, &arg));
	buffer = export(arg.fd, 0, PAGES);
	ASSERT_LE(0, buffer);
	attachment = attach_to(device_in(0), buffer);
	ASSERT_LE(0, attachment);
	EXPECT_EQ(-EOPNOTSUPP, map_attachment(attachment, IMPORTER_TO_DEVICE, &map));
	EXPECT_STREQ(text("actmem: platform importer.0 cannot map a dma-buf of region %llu 'shared': all its DMA would be copied through bounce buffers; boot without swiotlb=force, or with an IOMMU (intel_iommu=on)",
			  (unsigned long long)arg.id), read_log(log, "actmem: "));
	memory = map_buffer(buffer, PAGES);
	ASSERT_NE(MAP_FAILED, memory);
	memset(memory, 1, PAGES * PAGE_BYTES);
	munmap(memory, PAGES * PAGE_BYTES);
	close(attachment);
	close(buffer);
	close(arg.fd);
	close(log);
	EXPECT_EQ(0, unload_importer());
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
