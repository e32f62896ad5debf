/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the driver is asked for anonymous regions and for named ones alike. 0 or
 * -errno, with words where nothing else is said.
 */
#ifndef LIB_DRIVER_H
#define LIB_DRIVER_H

#include "../uapi/actmem.h"
#include "backend.h"
#include "node.h"

/* An ioctl; without words. A signal that does not kill interrupts nothing. */
int driver_ask(int fd, unsigned long request, void *argument);

/* Whether the pages asked for are the driver's. */
int driver_check_pages(const struct region_request *request);

/*
 * ACTMEM_IOC_CREATE on the device, or on an empty file, with the step to other
 * nodes that the request allows: a region of the driver's own pages. Of the
 * descriptors, *@backing has that of one on the device alone.
 */
int driver_make(int fd, const struct region_request *request, struct backing *backing);

/* What the pages of a region are called. */
static inline enum actmem_pages driver_pages(const struct actmem_ioctl_info *info)
{
	return pages_of_bytes(info->imported_page_bytes ? info->imported_page_bytes :
			      info->page_bytes);
}

/* A region of pages of 1 GiB that hugetlb has. */
int driver_create_1g(int device, const struct region_request *request, struct backing *backing);

/* See struct backend. */
int driver_import(int device, const struct memory_request *memory, struct backing *backing);
int driver_export(const struct backing *backing, uint64_t offset, uint64_t length,
		  uint32_t flags, int *fd);

/* Of a region's descriptor; see struct backend. */
int driver_open_name(const struct region_request *request, struct backing *backing);

#endif /* LIB_DRIVER_H */
