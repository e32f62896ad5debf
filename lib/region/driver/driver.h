/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Requests to the driver for anonymous regions and for named ones alike. 0 or
 * -errno, with words where nothing else is said.
 */
#ifndef LIB_REGION_DRIVER_DRIVER_H
#define LIB_REGION_DRIVER_DRIVER_H

#include "region/backend.h"
#include "../uapi/actmem.h"

/* An ioctl; without words. A signal that does not kill interrupts nothing. */
int driver_ask(int fd, unsigned long request, void *argument);

/* Asks the device what the driver is; without words. */
int driver_query(int device, struct actmem_ioctl_query *query);

/* Checks that the pages asked for are the driver's, or its own are allowed instead. */
int driver_check_pages(const struct region_request *request);

/* Counts and tells that they are its own instead. */
void driver_tell_pages(const struct region_request *request, unsigned int *fallbacks);

/*
 * Makes a region of the driver's own pages, with the step to other nodes that the
 * request allows: on the device; or, if it is lazy, as that of an empty file, whose
 * descriptor *@backing does not get; or, if @fd is -1, as that of a file without a name.
 */
int driver_make(int fd, const struct region_request *request, struct backing *backing);

/* Exports a range of a region; see struct backend. */
int driver_export(const struct backing *backing, uint64_t offset, uint64_t length, int *fd);

/* Opens a region by its name; see struct backend. */
int driver_open_name(const struct region_request *request, struct backing *backing);

#endif /* LIB_REGION_DRIVER_DRIVER_H */
