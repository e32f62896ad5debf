/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads what another process publishes of itself (stats.h), without mapping it.
 */
#ifndef LIB_PUBLISHED_H
#define LIB_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

#include "stats.h"

/*
 * Descriptors and records mostly rise together: the record behind the one that
 * was found last is tried first.
 */
struct published {
	int fd;
	unsigned int next;
};

/* Whether this is a descriptor of what the process publishes. */
bool published_is(int fd, int pid);

/* The record of a region; false: it has none. */
bool published_find(struct published *published, uint64_t device, uint64_t id,
		    struct stats_record *record);

#endif /* LIB_PUBLISHED_H */
