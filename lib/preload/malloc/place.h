/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * On which node memory is to be. The command links this file too.
 */
#ifndef LIB_PRELOAD_MALLOC_PLACE_H
#define LIB_PRELOAD_MALLOC_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include "preload/settings.h"

struct place {
	enum actmem_policy policy;	/* DEFAULT: pages come from where the kernel likes */
	bool by_caller;			/* the node of the calling CPU, each with its own pool */
	struct actmem_nodes nodes;
};

/* @reader has the error if the settings do not go together. */
void place_choose(struct place *place, const struct malloc_settings *settings,
		  struct reader *reader);

/* The node whose pool the caller is to use; 0 where there is one pool. */
unsigned int place_of_caller(const struct place *place);

/* Before a page is there: the pages of @node, or of all nodes. 0 or -errno without words. */
int place_range(const struct place *place, unsigned int node, void *address, size_t length);

#endif /* LIB_PRELOAD_MALLOC_PLACE_H */
