/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A growing array of what is known of regions.
 */
#ifndef LIB_WATCH_LIST_H
#define LIB_WATCH_LIST_H

#include <stddef.h>

#include "actmem.h"

struct region_list {
	struct actmem_region_info *items;
	size_t count;
	size_t room;
};

/* A zeroed new last item with its size set; NULL with words: no memory. */
struct actmem_region_info *list_add(struct region_list *list);
void list_drop_last(struct region_list *list);

/* The name of a file, as far as it is one that a region can bear. */
void name_label(char label[ACTMEM_NAME_MAX], const char *path);

#endif /* LIB_WATCH_LIST_H */
