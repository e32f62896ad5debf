/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads what another process publishes of itself (stats.h), without mapping it.
 */
#ifndef LIB_WATCH_PUBLISHED_H
#define LIB_WATCH_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

#include "watch/stats.h"

/*
 * Descriptors and records mostly rise together: the record behind the one that
 * was found last is tried first.
 */
struct published {
	int fd;
	unsigned int next;
};

#define PUBLISHED_LINK	"/memfd:" STATS_LABEL " (deleted)"

/*
 * A descriptor of another process's file, -EINVAL if it is none in memory. The name
 * may be that of anything, a device included, and to open a device could do harm:
 * O_PATH gets hold of it without opening it. Its owner may have a lease of it, for
 * which an open would wait 45 seconds: that is -EINVAL, too.
 */
int memory_file_open(const char *path);

/*
 * A descriptor of what the process publishes, by that link in /proc/PID/fd. -EINVAL:
 * it is something else; or the errno of who may not, or cannot, open it.
 */
int published_open(const char *path, int pid);

/* Its counters; false: they cannot be read. */
bool published_header(int fd, struct stats_header *header);

/* The record of a region; false: it has none. */
bool published_find(struct published *published, uint64_t device, uint64_t id,
		    struct stats_record *record);

/* The wait of a thread; false: its library does not tell. A senseless one is WAIT_NONE. */
bool published_waits(int fd, struct published_waits *waits);

#endif /* LIB_WATCH_PUBLISHED_H */
