/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes data about this process in a sealed memfd.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "watch/publish.h"

void *publish_file(const struct published_kind *kind, int *fd, const char **call)
{
	struct rlimit limit;
	void *memory = MAP_FAILED;
	int error;

	/* ftruncate() beyond this limit would raise SIGXFSZ. */
	*call = "RLIMIT_FSIZE";
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < kind->bytes) {
		errno = EFBIG;
		return NULL;
	}
	*call = "memfd_create";
	*fd = memfd_create(kind->label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	*call = "sizing a memfd";
	if (!ftruncate(*fd, (off_t)kind->bytes) &&
	    !fcntl(*fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)) {
		*call = "mmap";
		memory = mmap(NULL, kind->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	}
	if (memory != MAP_FAILED)
		return memory;
	error = errno;
	/* Do not call the C library's close(), which is a cancellation point. */
	syscall(SYS_close, *fd);
	errno = error;
	return NULL;
}

void publish_start(const struct published_kind *kind, struct published_start *start)
{
	start->version = kind->version;
	start->pid = getpid();
	atomic_thread_fence(memory_order_release);
	start->magic = kind->magic;
}
