/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A growing array of what is known of regions.
 */
#ifndef LIB_WATCH_LIST_H
#define LIB_WATCH_LIST_H

#include <stddef.h>

#include "actmem.h"
#include "base/base.h"

struct region_item {
	struct actmem_region_info info;	/* has the next two, an empty path as well */
	uint64_t node_bytes[ACTMEM_NODES_MAX];
	char path[PATH_TEXT_MAX];
};

struct region_list {
	struct region_item *items;
	size_t count;
	size_t room;
};

/* Empties it, and has its info point to what it has. */
void item_init(struct region_item *item);

/* Makes it the same as another, which has its own. */
void item_copy(struct region_item *item, const struct region_item *from);

/* An empty new last item; NULL with words: no memory. */
struct region_item *list_add(struct region_list *list);
void list_drop_last(struct region_list *list);

/* The name of a file, as far as it is one that a region can bear. */
void name_label(char label[ACTMEM_NAME_MAX], const char *path);

#endif /* LIB_WATCH_LIST_H */
