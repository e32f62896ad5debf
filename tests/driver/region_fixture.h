/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Tests of one region of PAGES pages and a mapping of it. MAKE_REGION is create_pages
 * or create_lazy; FILL_REGION, where a test has one, writes to it.
 */
#ifndef REGION_FIXTURE_H
#define REGION_FIXTURE_H

#include "driver_test.h"

#define LENGTH	(PAGES * PAGE_BYTES)

FIXTURE(region)
{
	int device;
	int fd;
	char *memory;
};

FIXTURE_SETUP(region)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
	self->fd = must(MAKE_REGION(self->device, PAGES));
	self->memory = mapped(map(self->fd, PAGES));
#ifdef FILL_REGION
	FILL_REGION(self->memory);
#endif
}

FIXTURE_TEARDOWN(region)
{
	struct actmem_ioctl_info now;

	munmap(self->memory, LENGTH);
	EXPECT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(0, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
	close(self->fd);
	close(self->device);
	EXPECT_EQ(0, regions());
}

#endif
