/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Maps regions.
 */
#ifndef LIB_REGION_MAP_H
#define LIB_REGION_MAP_H

#include "region/backend.h"

/*
 * Maps the whole file of a backing (MAP_SHARED) at a 2 MiB-aligned address. The mapping is
 * read-only if the backing is. Excludes the mapping from core dumps and, unless the backing has
 * @inherit, from forked children. Sets @backing->address. Returns 0, or -errno with an error
 * message.
 */
int map_region(struct backing *backing);

#endif /* LIB_REGION_MAP_H */
