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

/* The caller's items may be shorter than ours, or longer with zeroes behind. */
static int hand_out(const struct region_list *list, size_t size,
		    struct actmem_region_info **regions)
{
	unsigned char *items = calloc(list->count + 1, size);
	size_t i;

	if (!items)
		return fail(ENOMEM, "no memory for a list of %zu regions", list->count);
	for (i = 0; i < list->count; i++) {
		memcpy(items + i * size, &size, sizeof(size));
		give_struct(items + i * size, &list->items[i], sizeof(list->items[i]), "list");
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
		return fail(EINVAL, "actmem_region_list: nowhere to put the list");
	for (backend = 0; !error && backend < 2; backend++)
		error = backends[backend]->list(&list);
	if (!error)
		error = processes_paths(&list);
	for (i = 0; i < list.count; i++)
		process_command(list.items[i].pid, list.items[i].command);
	if (!error)
		error = hand_out(&list, size, regions);
	if (!error)
		*count = list.count;
	free(list.items);
	return error;
}
