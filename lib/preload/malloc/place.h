/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Chooses the NUMA nodes for the memory of malloc mode. The command `actmem` links place.c, too. */
#ifndef LIB_PRELOAD_MALLOC_PLACE_H
#define LIB_PRELOAD_MALLOC_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include "preload/settings.h"

struct place {
	enum actmem_policy policy;	/* DEFAULT: the kernel chooses each page's node */
	bool by_caller;			/* use the calling CPU's node; each node has a pool */
	struct actmem_nodes nodes;
};

/*
 * Chooses the policy and the nodes. If the settings conflict, @reader then has the error message.
 */
void place_choose(struct place *place, const struct malloc_settings *settings,
		  struct reader *reader);

/* Returns the node whose pool the caller should use; 0 if there is only one pool. */
unsigned int place_of_caller(const struct place *place);

/*
 * Sets the policy of a range that has no pages yet. Its pages will come from @node if by_caller is
 * set in @place, otherwise from the nodes of @place. Returns 0, or a negative errno without an
 * error message.
 */
int place_range(const struct place *place, unsigned int node, void *address, size_t length);

#endif /* LIB_PRELOAD_MALLOC_PLACE_H */
