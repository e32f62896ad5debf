/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Lists the regions of this machine, of both backends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/backend.h"
#include "watch/watch.h"

/* Sets the item's node count. Returns how many bytes its array of nodes and its path need. */
static size_t measure_item(struct region_item *item)
{
	item->info.node_count = nodes_told(item->node_bytes);
	return item->info.node_count * sizeof(uint64_t) + strlen(item->path) + 1;
}

/*
 * Copies the list to one allocation for the caller. @size is the size of an item in the caller's
 * version of the library. If @size is larger than an item, the rest of each item is zero. The
 * arrays of nodes follow the items, and the paths come last.
 */
static int copy_list(struct region_list *list, size_t size, struct actmem_region_info **regions)
{
	size_t at = round_up(list->count * size, sizeof(uint64_t)), length = at + 1, i;
	unsigned char *items;

	for (i = 0; i < list->count; i++)
		length += measure_item(&list->items[i]);
	items = calloc(1, length);
	if (!items)
		return fail(ENOMEM, "no memory for a list of %zu regions", list->count);
	for (i = 0; i < list->count; i++) {
		struct actmem_region_info *info = &list->items[i].info;

		info->node_bytes = memcpy(items + at, info->node_bytes,
					  info->node_count * sizeof(uint64_t));
		at += info->node_count * sizeof(uint64_t);
	}
	for (i = 0; i < list->count; i++) {
		struct actmem_region_info *info = &list->items[i].info;
		size_t path_length = strlen(info->path);

		info->path = path_length ? strcpy((char *)items + at, info->path) : NULL;
		at += path_length + 1;
		memcpy(items + i * size, &size, sizeof(size));
		give_struct(items + i * size, info, sizeof(*info), "list");
	}
	*regions = (struct actmem_region_info *)items;
	return 0;
}

int actmem_region_list_sized(struct actmem_region_info **regions, size_t *count, size_t size)
{
	static const struct backend *const backends[] = { &backend_driver, &backend_memfd };
	struct region_list list = { 0 };
	unsigned int backend;
	int error = 0;
	size_t i;

	if (!regions || !count || size <= sizeof(size_t) || size > (1U << 20))
		return fail(EINVAL, "actmem_region_list: regions or count is NULL, or size is wrong");
	for (backend = 0; !error && backend < 2; backend++)
		error = backends[backend]->list(&list);
	if (!error)
		error = processes_paths(&list);
	for (i = 0; i < list.count; i++)
		process_command(list.items[i].info.pid, list.items[i].info.command);
	if (!error)
		error = copy_list(&list, size, regions);
	if (!error)
		*count = list.count;
	free(list.items);
	return error;
}
