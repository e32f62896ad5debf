/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Creates and closes a queue's ring with its tables, and explains why the kernel refuses a ring. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "machine/machine.h"
#include "queue/uring.h"

#define COMPLETIONS	(4 * RING_ENTRIES)

static int fail_setup(int error)
{
	struct rlimit limit = { 0 };
	uint64_t disabled;
	bool is_refused = error == EPERM || error == EACCES;

	if (error == ENOSYS)
		return fail(error, "io_uring is unavailable (this kernel has no io_uring, or seccomp hides it)");
	if (is_refused && !sysfile_value(&disabled, "/proc/sys/kernel/io_uring_disabled") &&
	    disabled)
		return fail(error, "io_uring is unavailable (kernel.io_uring_disabled is %llu: 0 permits io_uring to all users, 1 to the group of kernel.io_uring_group)",
			    (unsigned long long)disabled);
	if (is_refused)
		return fail(error, "io_uring is unavailable (io_uring_setup: %s; the container's seccomp profile may forbid it)",
			    strerror(error));
	if (error == ENOMEM && !getrlimit(RLIMIT_MEMLOCK, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY)
		return fail(error, "io_uring is unavailable (io_uring_setup: %s; the rings of a user count against RLIMIT_MEMLOCK, which is %llu KiB: raise it with `ulimit -l`)",
			    strerror(error), (unsigned long long)limit.rlim_cur / 1024);
	return fail(error, "io_uring is unavailable (io_uring_setup: %s)", strerror(error));
}

/*
 * Creates a ring that only this thread uses. The kernel processes completions only when the thread
 * asks for them. This mode is the cheapest, and needs Linux 6.1.
 */
static int setup(struct io_uring *ring)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL |
			 IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
		.cq_entries = COMPLETIONS,
	};
	int error = io_uring_queue_init_params(RING_ENTRIES, ring, &params);

	if (error == -EINVAL)
		return fail(ENOSYS, "io_uring is unavailable (this kernel is older than Linux 6.1)");
	return error ? fail_setup(-error) : 0;
}

int ring_open(struct uring *uring)
{
	int error = setup(&uring->ring);

	if (error)
		return error;
	/* Saves a look-up in each system call of this thread. A failure here is harmless. */
	io_uring_register_ring_fd(&uring->ring);
	error = io_uring_ring_dontfork(&uring->ring);
	if (!error)
		error = io_uring_register_buffers_sparse(&uring->ring, RING_BUFFERS);
	if (!error)
		error = io_uring_register_files_sparse(&uring->ring, RING_FILES);
	if (error) {
		io_uring_queue_exit(&uring->ring);
		return fail(-error, "cannot create an io_uring (io_uring_register: %s)%s", strerror(-error),
			    error == -EMFILE ? "; raise RLIMIT_NOFILE to at least 256" : "");
	}
	uring->descriptors[0] = uring->ring.ring_fd;
	return 0;
}

/*
 * Closes the ring. The kernel ends a ring in the background, but releases files and buffers at once
 * if they are unregistered first. Unregister the files before the buffers: otherwise, on Linux 6.1,
 * releasing the buffers waits a second for closed files.
 */
void ring_close(struct uring *uring)
{
	io_uring_unregister_files(&uring->ring);
	io_uring_unregister_buffers(&uring->ring);
	io_uring_queue_exit(&uring->ring);
}
