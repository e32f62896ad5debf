// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Where the kernel has all DMA go through bounce buffers (swiotlb=force), no device
 * maps a dma-buf.
 */
#include "dmabuf_test.h"

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
	int fd, buffer, attachment;
	struct importer_map map;

	ASSERT_TRUE(is_forced());
	ASSERT_EQ(0, load_module(IMPORTER));
	fd = create_pages(self->device, PAGES);
	buffer = must(export(fd, 0, PAGES));
	attachment = must(attach_to(device_in(0), buffer));
	EXPECT_EQ(-EOPNOTSUPP, map_attachment(attachment, IMPORTER_TO_DEVICE, &map));
	close(attachment);
	close(buffer);
	close(fd);
	EXPECT_EQ(0, unload_module("importer"));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
