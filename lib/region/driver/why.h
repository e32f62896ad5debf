/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Why the driver could not have pages, in words.
 */
#ifndef LIB_REGION_DRIVER_WHY_H
#define LIB_REGION_DRIVER_WHY_H

#include <stdbool.h>
#include <stdint.h>

#include "../uapi/actmem.h"

/*
 * Sets this thread's words for a request that failed with this errno. False,
 * and none are set: the driver gives no reason. @fd: of the region that it was
 * about, whose maker is charged; -1: one that would have been this process's.
 * @may_go_elsewhere: other nodes could be allowed.
 */
bool why_tell(int error, const struct actmem_why *why, int fd, bool may_go_elsewhere);

/*
 * Adds where the file system is mounted whose size= was reached, and what its files
 * have; @fd: of one of them, or -1.
 */
void why_tell_mount(int fd);

#endif /* LIB_REGION_DRIVER_WHY_H */
