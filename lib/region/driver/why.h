/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Writes the error message if the driver cannot allocate pages. The driver gives the reason.
 */
#ifndef LIB_REGION_DRIVER_WHY_H
#define LIB_REGION_DRIVER_WHY_H

#include <stdbool.h>
#include <stdint.h>

#include "../uapi/actmem.h"

/*
 * Sets this thread's error message for a request that failed with errno @error. Returns false
 * without a message if the driver gave no reason. @fd: the region whose creator is charged for the
 * pages; -1: a new region of this process. @may_go_elsewhere: the message may suggest allowing
 * other nodes.
 */
bool why_tell(int error, const struct actmem_why *why, int fd, bool may_go_elsewhere);

/*
 * For a file system that has reached its size= limit: appends to the error message where it is
 * mounted and how much its files use. @fd: a file of that file system; -1: append nothing.
 */
void why_tell_mount(int fd);

#endif /* LIB_REGION_DRIVER_WHY_H */
