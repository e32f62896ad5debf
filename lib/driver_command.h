/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What changes the pages of a driver's region: populate, discard and copy, as
 * ioctls and as commands of io_uring.
 */
#ifndef LIB_DRIVER_COMMAND_H
#define LIB_DRIVER_COMMAND_H

#include "backend.h"

/* As struct backend has them. */
int driver_populate(const struct backing *backing, uint64_t offset, uint64_t length);
int driver_discard(const struct backing *backing, uint64_t offset, uint64_t length);
int driver_copy(const struct backing *to, uint64_t offset, const struct backing *from,
		uint64_t from_offset, uint64_t length);
void driver_command(const struct page_change *change, struct backend_command *command);
int driver_command_result(struct backend_command *command, int result);

#endif /* LIB_DRIVER_COMMAND_H */
