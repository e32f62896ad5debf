/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Mappings of regions.
 */
#ifndef LIB_REGION_MAP_H
#define LIB_REGION_MAP_H

#include "region/backend.h"

/*
 * Maps all of a backing's file shared at a 2 MiB-aligned address, read-only if it
 * is, out of core dumps and, unless it is to be inherited, out of forked children.
 * Sets @backing->address. 0 or -errno with words.
 */
int map_region(struct backing *backing);

#endif /* LIB_REGION_MAP_H */
