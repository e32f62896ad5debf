/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes the counters of malloc mode.
 *
 * The descriptor of the published file has a high number, because a program may rely on low
 * numbers. A program may also close the descriptor, and get the same number for a file of its own.
 * So a forked child closes the descriptor only if this number still refers to the published file.
 *
 * This file calls close(2) with syscall(). The C library's close() is a cancellation point, so a
 * thread could be cancelled in close() while the thread holds the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/malloc/counters.h"

#define HIGH_DESCRIPTOR	500

static struct malloc_counters private_counters;
static struct malloc_counters *counters;	/* NULL: not published yet */
static int descriptor = -1;
static struct stat file;

static int move_up(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
	struct rlimit limit;

	if (high < 0 && errno == EINVAL && !getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur)
		high = fcntl(fd, F_DUPFD_CLOEXEC, (int)limit.rlim_cur - 1);
	if (high < 0)
		return fd;
	syscall(SYS_close, fd);
	return high;
}

struct malloc_counters *counters_get(void)
{
	const char *call;
	int fd;

	if (counters)
		return counters;
	counters = publish_file(&published_malloc, &fd, &call);
	if (!counters) {
		counters = &private_counters;
		return counters;
	}
	descriptor = move_up(fd);
	fstat(descriptor, &file);
	publish_start(&published_malloc, &counters->start);
	return counters;
}

void counters_renew(void)
{
	struct stat now;

	if (descriptor >= 0) {
		munmap(counters, published_malloc.bytes);
		if (!fstat(descriptor, &now) && now.st_dev == file.st_dev &&
		    now.st_ino == file.st_ino)
			syscall(SYS_close, descriptor);
	}
	descriptor = -1;
	counters = NULL;
}
