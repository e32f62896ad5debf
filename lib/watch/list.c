/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A growing array of what is known of regions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "watch/list.h"

struct actmem_region_info *list_add(struct region_list *list)
{
	struct actmem_region_info *items;
	size_t room;

	if (list->count == list->room) {
		room = list->room ? list->room * 2 : 16;
		items = realloc(list->items, room * sizeof(*items));
		if (!items) {
			fail(ENOMEM, "no memory for a list of %zu regions", room);
			return NULL;
		}
		list->items = items;
		list->room = room;
	}
	items = &list->items[list->count++];
	ACTMEM_INIT(items);
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
