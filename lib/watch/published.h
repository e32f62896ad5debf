/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the data that another process publishes about itself (stats.h), without mapping it.
 */
#ifndef LIB_WATCH_PUBLISHED_H
#define LIB_WATCH_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

#include "watch/stats.h"

/*
 * A process's published file. Its descriptors and records are mostly in the same order, so
 * published_find() first tries the record after the one that it found last.
 */
struct published {
	int fd;
	unsigned int next;
};

#define PUBLISHED_LINK	"/memfd:" STATS_LABEL " (deleted)"

/*
 * Opens a file of another process. Returns a descriptor, or -EINVAL if it is no tmpfs file. The
 * path may lead to anything. Opening a device could do harm, so the function checks the file with
 * O_PATH first, which does not open it. If the owner has a lease on the file, opening it would
 * block for 45 seconds: the function returns -EINVAL, too.
 */
int memory_file_open(const char *path);

/*
 * Opens the published file of a process. @path: the link in /proc/PID/fd. Returns a descriptor,
 * -EINVAL if it is something else, or the errno if this process cannot open it.
 */
int published_open(const char *path, int pid);

/* Reads the header, which has the counters. Returns false if it cannot be read. */
bool published_header(int fd, struct stats_header *header);

/* Finds the record of a region. Returns false if the file has none. */
bool published_find(struct published *published, uint64_t device, uint64_t id,
		    struct stats_record *record);

/*
 * Reads the waits of a process. Returns false if its library does not publish any. A wait that
 * makes no sense becomes WAIT_NONE.
 */
bool published_waits(int fd, struct published_waits *waits);

#endif /* LIB_WATCH_PUBLISHED_H */
