/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes the counters of malloc mode.
 *
 * The descriptor has a high number, because a program may rely on the low ones. A program may also
 * close it, and open a file of its own with that number. So a forked child closes the descriptor
 * only if it still is the same file.
 *
 * This file calls close(2) with syscall(). The C library's close() is a cancellation point, so a
 * thread could end in it with the lock held.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/malloc/tell.h"

#define HIGH_DESCRIPTOR	500

static struct told unseen;
static struct told *published = &unseen;
static bool tried;
static int descriptor = -1;
static dev_t device;
static ino_t inode;

static void close_fd(int fd)
{
	syscall(SYS_close, fd);
}

static int move_up(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
	struct rlimit limit;

	if (high < 0 && errno == EINVAL && !getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur)
		high = fcntl(fd, F_DUPFD_CLOEXEC, (int)limit.rlim_cur - 1);
	if (high < 0)
		return fd;
	close_fd(fd);
	return high;
}

static void publish_told(int fd)
{
	struct stat file;
	struct told *memory;

	if (ftruncate(fd, TOLD_BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) ||
	    fstat(fd, &file))
		goto close;
	memory = mmap(NULL, TOLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		goto close;
	device = file.st_dev;
	inode = file.st_ino;
	descriptor = move_up(fd);
	published = memory;
	published->version = TOLD_VERSION;
	published->pid = getpid();
	published->magic = TOLD_MAGIC;
	return;
close:
	close_fd(fd);
}

struct told *tell(void)
{
	int fd;

	if (!tried) {
		tried = true;
		fd = memfd_create(TOLD_LABEL, MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd >= 0)
			publish_told(fd);
	}
	return published;
}

void tell_anew(void)
{
	struct stat file;

	if (published != &unseen)
		munmap(published, TOLD_BYTES);
	if (descriptor >= 0 && !fstat(descriptor, &file) && file.st_dev == device &&
	    file.st_ino == inode)
		close_fd(descriptor);
	descriptor = -1;
	published = &unseen;
	tried = false;
}
