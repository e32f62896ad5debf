/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Mappings of regions.
 */
#ifndef LIB_MAP_H
#define LIB_MAP_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Maps all of @fd shared at a 2 MiB-aligned address, out of core dumps and,
 * unless @inherit, out of forked children. @length is a multiple of 4 KiB.
 * 0 or -errno with words.
 */
int map_region(int fd, uint64_t length, bool inherit, void **address);

#endif /* LIB_MAP_H */
