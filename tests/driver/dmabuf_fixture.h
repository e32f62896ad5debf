/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Tests of dma-bufs of a region that has its pages. */
#ifndef DMABUF_FIXTURE_H
#define DMABUF_FIXTURE_H

#include "dmabuf_test.h"

#define PAGES	4

FIXTURE(dmabuf)
{
	int device;
	int fd;
};

FIXTURE_SETUP(dmabuf)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	ASSERT_EQ(0, regions());
	self->fd = create_pages(self->device, PAGES);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(dmabuf)
{
	close(self->fd);
	EXPECT_EQ(0, regions());
	close(self->device);
}

#endif
