/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Counts the pages of a range of this process's memory, by /proc/self/smaps.
 */
#ifndef LIB_MACHINE_SMAPS_H
#define LIB_MACHINE_SMAPS_H

#include <stdint.h>

/*
 * Bytes that are mapped in the mappings that begin within the range, and those
 * of them that are shared memory mapped by transparent huge pages. 0 or -errno
 * with words.
 */
int smaps_count(const void *address, uint64_t length, uint64_t *mapped, uint64_t *huge);

#endif /* LIB_MACHINE_SMAPS_H */
