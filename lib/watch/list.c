/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A growing array of information about regions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "watch/list.h"

static void point(struct region_item *item)
{
	item->info.node_bytes = item->node_bytes;
	item->info.path = item->path;
}

void item_init(struct region_item *item)
{
	memset(item, 0, sizeof(*item));
	ACTMEM_INIT(&item->info);
	point(item);
}

void item_copy(struct region_item *item, const struct region_item *from)
{
	*item = *from;
	point(item);
}

struct region_item *list_add(struct region_list *list)
{
	struct region_item *items;
	size_t room, i;

	if (list->count == list->room) {
		room = list->room ? list->room * 2 : 16;
		items = realloc(list->items, room * sizeof(*items));
		if (!items) {
			fail(ENOMEM, "no memory for a list of %zu regions", room);
			return NULL;
		}
		list->items = items;
		list->room = room;
		for (i = 0; i < list->count; i++)
			point(&items[i]);
	}
	items = &list->items[list->count++];
	item_init(items);
	return items;
}

void list_drop_last(struct region_list *list)
{
	list->count--;
}

void name_label(char label[ACTMEM_NAME_MAX], const char *path)
{
	const char *from = strrchr(path, '/');
	size_t i;

	from = from ? from + 1 : path;
	memset(label, 0, ACTMEM_NAME_MAX);
	for (i = 0; from[i] && i < ACTMEM_NAME_MAX - 1; i++)
		label[i] = from[i] < ' ' || from[i] > '~' ? '?' : from[i];
}
