/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Has the kernel order what other threads do; see fence.h.
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap/fence.h"

bool fence_by_kernel;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool kernel_can(void)
{
/* ThreadSanitizer knows nothing of this call, and all of the other way. */
#ifdef __SANITIZE_THREAD__
	return false;
#else
	return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) &&
	       !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
#endif
}

static void prepare(void)
{
	fence_by_kernel = kernel_can();
}

void fence_prepare(void)
{
	pthread_once(&once, prepare);
}

bool fence_seldom(void)
{
	if (!fence_by_kernel || !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		return true;
	/* A forked child may have to register anew. */
	return errno == EPERM &&
	       !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) &&
	       !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}
