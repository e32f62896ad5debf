/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Requests to the driver, for regions with and without names. Functions return 0, or -errno with an
 * error message, unless noted.
 */
#ifndef LIB_REGION_DRIVER_DRIVER_H
#define LIB_REGION_DRIVER_DRIVER_H

#include "region/backend.h"
#include "../uapi/actmem.h"

/* Sends an ioctl, and repeats it if a signal interrupts it. Sets no error message. */
int driver_ask(int fd, unsigned long request, void *argument);

/* Asks the device for the driver's version and features. Sets no error message. */
int driver_query(int device, struct actmem_ioctl_query *query);

/* Checks that the request is for 2M pages, or allows 2M pages as a fallback. */
int driver_check_pages(const struct region_request *request);

/*
 * If 2M pages are a fallback for @request, counts and reports that fallback: increments *@fallbacks
 * and appends to the error message.
 */
void driver_tell_pages(const struct region_request *request, unsigned int *fallbacks);

/*
 * Creates a region of 2M pages. Uses other nodes as a fallback, if the request allows other nodes.
 * If @fd is the device, the region has no name. If @fd is an empty file, the file becomes a lazy
 * region, and the caller must store @fd in *@backing. If @fd is -1, the region is a new file
 * without a name.
 */
int driver_make(int fd, const struct region_request *request, struct backing *backing);

/* Exports a range of a region; see struct backend. */
int driver_export(const struct backing *backing, uint64_t offset, uint64_t length, int *fd);

/* Opens a region by its name; see struct backend. */
int driver_open_name(const struct region_request *request, struct backing *backing);

#endif /* LIB_REGION_DRIVER_DRIVER_H */
