/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes data about this process in a sealed memfd, which other processes find under /proc/PID/fd
 * and read with pread(2) (published.h). The functions do not allocate memory, and no thread can be
 * cancelled in them, because malloc mode calls them inside malloc().
 */
#ifndef LIB_WATCH_PUBLISH_H
#define LIB_WATCH_PUBLISH_H

#include <stdint.h>

/* The beginning of each published file. */
struct published_start {
	uint64_t magic;
	uint32_t version;
	int32_t pid;			/* in the process's own PID namespace */
};

/* A kind of published file. Readers accept only files of length @bytes. */
struct published_kind {
	const char *label;		/* the name of the memfd */
	uint64_t magic;
	uint64_t bytes;
	uint32_t version;
};

/*
 * Makes a file of zeros and maps it. Returns NULL with errno set if that fails. Sets *@call to the
 * name of the last call that was tried.
 */
void *publish_file(const struct published_kind *kind, int *fd, const char **call);

/* Writes the beginning of a file. From then on, readers accept the file. */
void publish_start(const struct published_kind *kind, struct published_start *start);

#endif /* LIB_WATCH_PUBLISH_H */
