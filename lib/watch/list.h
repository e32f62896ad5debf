/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A growing array of information about regions.
 */
#ifndef LIB_WATCH_LIST_H
#define LIB_WATCH_LIST_H

#include <stddef.h>

#include "actmem.h"
#include "base/base.h"

struct region_item {
	struct actmem_region_info info;	/* its node_bytes and path point to the fields below */
	uint64_t node_bytes[ACTMEM_NODES_MAX];
	char path[PATH_TEXT_MAX];
};

struct region_list {
	struct region_item *items;
	size_t count;
	size_t room;
};

/* Clears an item, and makes its info point to its own arrays. */
void item_init(struct region_item *item);

/* Copies an item. The info of the copy points to the copy's own arrays. */
void item_copy(struct region_item *item, const struct region_item *from);

/* Appends an empty item and returns it; NULL with an error message if memory is short. */
struct region_item *list_add(struct region_list *list);
void list_drop_last(struct region_list *list);

/*
 * Makes a region's name from the last part of @path: truncates it, and replaces forbidden bytes
 * with '?'.
 */
void name_label(char label[ACTMEM_NAME_MAX], const char *path);

#endif /* LIB_WATCH_LIST_H */
