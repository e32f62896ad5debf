/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the data that another process publishes about itself (publish.h), without mapping it.
 */
#ifndef LIB_WATCH_PUBLISHED_H
#define LIB_WATCH_PUBLISHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "watch/stats.h"

/*
 * A process's published file. The process's descriptors and its records are mostly in the same
 * order. So published_find() first tries the record after the last one that it found.
 */
struct published {
	int fd;
	unsigned int next;
};

/*
 * Opens each file of this kind that a process publishes, and calls @take, which must close the
 * descriptor. Returns the first result of @take that is not 0, or an error (see is_own_error())
 * without an error message.
 */
int published_walk(int pid, const struct published_kind *kind, int (*take)(void *context, int fd),
		   void *context);

/* The end of the limit in the file of a handle. */
#define PUBLISHED_LIMIT_END	(offsetof(struct stats_header, limit_bytes) + sizeof(uint64_t))

/*
 * Sets the limit of each handle of a process; 0: none. Returns the number of handles, or an error:
 * -EACCES if this process lacks permission, -ESRCH if the process does not exist, -EFBIG if
 * RLIMIT_FSIZE of this process is lower than PUBLISHED_LIMIT_END.
 */
int published_set_limit(int pid, uint64_t bytes);

/* Reads the header, which has the counters. Returns false if it cannot be read. */
bool published_header(int fd, struct stats_header *header);

/* Finds the record of a region. Returns false if the file has no such record. */
bool published_find(struct published *published, uint64_t device, uint64_t id,
		    struct stats_record *record);

/*
 * Reads the waits of a process. Returns false if the process's library publishes no waits. An
 * invalid wait becomes WAIT_NONE.
 */
bool published_waits(int fd, struct published_waits *waits);

#endif /* LIB_WATCH_PUBLISHED_H */
