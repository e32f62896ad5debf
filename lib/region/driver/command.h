/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Changes the pages of a driver's region: populate and discard, as ioctls and
 * as commands of io_uring.
 */
#ifndef LIB_REGION_DRIVER_COMMAND_H
#define LIB_REGION_DRIVER_COMMAND_H

#include "region/backend.h"
#include "../uapi/actmem.h"

/*
 * ACTMEM_IOC_POPULATE, of a long range by several threads. Without words: in *@range is
 * what the driver would have told of one call.
 */
int driver_populate_range(int fd, uint64_t offset, uint64_t length,
			  struct actmem_ioctl_range *range);

/* These are as struct backend has them. */
int driver_populate(const struct backing *backing, uint64_t offset, uint64_t length);
int driver_discard(const struct backing *backing, uint64_t offset, uint64_t length);
void driver_command(const struct page_change *change, struct backend_command *command);
int driver_command_result(struct backend_command *command, int result, uint64_t *done);

#endif /* LIB_REGION_DRIVER_COMMAND_H */
