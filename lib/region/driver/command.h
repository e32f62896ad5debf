/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Populates and discards pages of the driver's regions. */
#ifndef LIB_REGION_DRIVER_COMMAND_H
#define LIB_REGION_DRIVER_COMMAND_H

#include "region/backend.h"
#include "../uapi/actmem.h"

/*
 * Populates a range with ACTMEM_IOC_POPULATE. Uses several threads for a long range. Sets no error
 * message. Sets *@range as a single ioctl for the whole range would.
 */
int driver_populate_range(int fd, uint64_t offset, uint64_t length,
			  struct actmem_ioctl_range *range);

/* See struct backend. */
int driver_populate(const struct backing *backing, uint64_t offset, uint64_t length);
int driver_discard(const struct backing *backing, uint64_t offset, uint64_t length);

#endif /* LIB_REGION_DRIVER_COMMAND_H */
