/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What /proc/self/smaps says of a range of this process's memory.
 */
#ifndef LIB_SMAPS_H
#define LIB_SMAPS_H

#include <stdint.h>

/*
 * Bytes of shared memory that are mapped by transparent huge pages in the
 * mappings that begin within the range. 0 or -errno with words.
 */
int smaps_huge_bytes(const void *address, uint64_t length, uint64_t *bytes);

#endif /* LIB_SMAPS_H */
