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
 * without a message if the driver gave no reason. @fd is the region whose creator is charged for
 * the pages, or -1 for a new region of this process. If @may_go_elsewhere is true, the message may
 * suggest other nodes.
 */
bool why_tell(int error, const struct actmem_why *why, int fd, bool may_go_elsewhere);

/*
 * Appends to the error message where the file system of the file @fd is mounted, and how much of
 * its size= limit is in use. If @fd is -1, appends nothing.
 */
void why_tell_mount(int fd);

#endif /* LIB_REGION_DRIVER_WHY_H */
