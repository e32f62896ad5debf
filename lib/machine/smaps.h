/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Counts the pages in a range of this process's memory, with /proc/self/smaps.
 */
#ifndef LIB_MACHINE_SMAPS_H
#define LIB_MACHINE_SMAPS_H

#include <stdint.h>

/*
 * Counts the resident bytes of the mappings that begin in the range, and how many of these bytes
 * are transparent huge pages of shared memory. Returns 0, or -errno with an error message.
 */
int smaps_count(const void *address, uint64_t length, uint64_t *mapped, uint64_t *huge);

#endif /* LIB_MACHINE_SMAPS_H */
