/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Transfers of libactmem: a queue fills regions from files, spills them to
 * files, and populates and discards their pages, all while the caller does
 * something else.
 *
 * Every call may be made by any thread at any time, but for those that end a
 * thing: the caller sees to it that nobody uses a queue while it is destroyed,
 * a file while it is closed, or a region while it is detached. A queue has
 * threads of its own, in which no signal is delivered.
 */
#ifndef ACTMEM_QUEUE_H
#define ACTMEM_QUEUE_H

#include "actmem.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct actmem_queue;		/* takes requests, gives completions */
struct actmem_file;		/* one file, or several as stripes of one */

enum actmem_engine {
	ACTMEM_ENGINE_AUTO,	/* io_uring, or threads where that is refused */
	ACTMEM_ENGINE_URING,	/* io_uring or an error */
	ACTMEM_ENGINE_WORKERS,	/* threads that read and write */
};

#define ACTMEM_QUEUE_DEPTH_MAX	256
#define ACTMEM_QUEUE_WORKERS_MAX	64
#define ACTMEM_BLOCK_BYTES_MAX	(1ULL << 30)

struct actmem_queue_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t block_bytes;		/* of the longest transfer; 0: as a file's devices like */
	enum actmem_engine engine;
	uint32_t depth;			/* transfers of a file at a time; 0: likewise */
	uint32_t workers;		/* threads, where threads do it; 0: 8 */
	uint32_t reserved;		/* 0 */
};

/*
 * Makes a queue. @options NULL: defaults.
 *
 * -EINVAL  block_bytes no multiple of 4096 or over 1 GiB, depth over 256,
 *	workers over 64, unknown engine, reserved not 0
 * -ENOSYS, -EPERM, -EACCES  URING asked for, and the kernel has none, or refuses it:
 *	kernel.io_uring_disabled, seccomp, a security module
 * -ENOMEM, -EMFILE, -EAGAIN  no memory, descriptors, threads
 */
int actmem_queue_create(struct actmem *am, const struct actmem_queue_options *options,
			struct actmem_queue **queue);

/*
 * -EBUSY while it has files, attached regions, or requests whose completion has
 * not been taken by actmem_queue_wait(); nothing is ended then.
 */
int actmem_queue_destroy(struct actmem_queue *queue);

/*
 * Which engine works and why, and whether it does without registered buffers,
 * in words: "workers: io_uring is refused (...)". Valid until the queue is
 * destroyed; what it says of buffers may be another text later.
 */
const char *actmem_queue_describe(const struct actmem_queue *queue);

struct actmem_queue_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t requests;		/* under way */
	uint64_t completions;		/* that wait to be taken */
	uint64_t files;
	uint64_t regions;		/* attached */
	uint64_t registered_bytes;	/* of them, in registered buffers */
	uint64_t requests_total;
	uint64_t failures_total;	/* that ended with an error */
	uint64_t filled_bytes_total;
	uint64_t spilled_bytes_total;
	uint64_t resumed_total;		/* transfers that were short, and what had to be repeated */
	enum actmem_engine engine;	/* the one that works */
	uint32_t reserved;
};

/* Totals since the queue was made, and its current state. */
int actmem_queue_get_stats(struct actmem_queue *queue, struct actmem_queue_stats *stats);

/*
 * Leaves the region's memory unregistered, so that its pages may come and go:
 * each transfer looks them up.
 */
#define ACTMEM_ATTACH_PLAIN	(1u << 0)

/*
 * Makes a region known to the queue, as actmem_queue_fill() and actmem_queue_spill() need it,
 * maps it, and registers its memory with io_uring, in pieces of 1 GiB at most.
 * Registered memory counts against RLIMIT_MEMLOCK once more: pages that were missing
 * are allocated, and none can be discarded.
 *
 * Until the region is detached it stays open: actmem_region_close() is -EBUSY. Some
 * kernels register no memory of the driver's (6.1); then it is left plain, and
 * actmem_queue_describe() says so. Workers register nothing.
 *
 * -EEXIST  it is attached;  -ENOMEM  RLIMIT_MEMLOCK;  -EMFILE  over 4096 pieces;
 *	-EPERM  it was opened with ACTMEM_OPEN_READ;  -EOPNOTSUPP  it is a runtime's own memory
 */
int actmem_queue_attach(struct actmem_queue *queue, struct actmem_region *region, uint32_t flags);

/*
 * Returns when the kernel holds the region's memory no longer on behalf of this
 * queue. -EBUSY while requests of it are under way; -ENOENT if it is not attached.
 */
int actmem_queue_detach(struct actmem_queue *queue, struct actmem_region *region);

/* Makes the files, readable for their owner alone; -EEXIST if one is there. */
#define ACTMEM_FILE_CREATE		(1u << 0)
/*
 * The paths are directories: in each a file without a name is made, which goes
 * with its last descriptor, whatever ends the process.
 */
#define ACTMEM_FILE_TEMPORARY		(1u << 1)
#define ACTMEM_FILE_READ_ONLY		(1u << 2)
/* Through the page cache where a file has no direct I/O; an error otherwise. */
#define ACTMEM_FILE_ALLOW_BUFFERED	(1u << 3)
/*
 * Reading leaves the files' times of last access as they are (O_NOATIME), which spares
 * each block some microseconds; -EPERM where somebody else owns them. TEMPORARY ones
 * have it in any case.
 */
#define ACTMEM_FILE_NO_ATIME		(1u << 4)

#define ACTMEM_FILE_PATHS_MAX	64

/*
 * Byte n of the set lies in file (n / stripe_bytes) mod path_count. Block devices
 * are files too.
 */
struct actmem_file_options {
	size_t size;			/* set by ACTMEM_INIT */
	const char *const *paths;
	uint32_t path_count;		/* 1 to 64 */
	uint32_t flags;			/* ACTMEM_FILE_* */
	uint64_t stripe_bytes;		/* a multiple of the alignment; 0: its block_bytes */
	uint64_t length;		/* bytes of the set to allocate on the disks; 0: none */
};

/* A set of files as it was opened. */
struct actmem_file_info {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t alignment;		/* of offsets in the set and of lengths */
	uint64_t memory_alignment;	/* of offsets in a region */
	uint64_t block_bytes;		/* longer requests are done in blocks of this size */
	uint64_t stripe_bytes;
	uint64_t length;		/* bytes that the set holds now, without a gap */
	uint32_t depth;			/* blocks at a time */
	uint32_t direct;		/* 1: past the page cache; 0: buffered, as allowed */
	uint32_t rotational;		/* 1: some device of it */
	uint32_t reserved;
};

/*
 * Opens files for transfers by this queue, for direct I/O. Nothing is left of
 * those that were made if it fails.
 *
 * -EINVAL  options, or a file without direct I/O;  -ENOSPC  too little room for
 *	length;  -EFBIG  RLIMIT_FSIZE;  -EMFILE  over 256 files in a queue with
 *	io_uring;  else as open(2)
 */
int actmem_file_open(struct actmem_queue *queue, const struct actmem_file_options *options,
		     struct actmem_file **file);

/*
 * -EBUSY while requests of it are under way. Linux 6.1 holds the files for up to a
 * second more, or until the queue is destroyed: their file system is busy until then.
 */
int actmem_file_close(struct actmem_file *file);

/* How a set was opened, and how long it is now. */
int actmem_file_get_info(struct actmem_file *file, struct actmem_file_info *info);

/* Options of a request; NULL in place of one: none. */
struct actmem_request {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t cookie;		/* comes back with the completion */
	uint64_t deadline_ns;		/* of CLOCK_MONOTONIC; 0: none */
	uint64_t id;			/* out: for actmem_queue_cancel() */
};

/*
 * From a file into a region, and from a region to a file. Offsets and lengths are
 * multiples of what actmem_file_get_info() says; the region is attached.
 *
 * These return when the request is taken; how it ended is told by actmem_queue_wait().
 * The memory must be left alone until then. Requests of a file are begun in order, and may
 * end in any. Where ranges of two meet, the caller waits for the first.
 *
 * -EINVAL  range, alignment, a region that is not attached, or a file of another
 *	queue;  -EBADF  a spill to a file that is READ_ONLY;  -ENOMEM
 */
int actmem_queue_fill(struct actmem_queue *queue, struct actmem_file *file, uint64_t file_offset,
		      struct actmem_region *region, uint64_t offset, uint64_t length,
		      struct actmem_request *request);
int actmem_queue_spill(struct actmem_queue *queue, struct actmem_file *file, uint64_t file_offset,
		       struct actmem_region *region, uint64_t offset, uint64_t length,
		       struct actmem_request *request);

/*
 * As actmem_region_populate() and _discard(), with their ranges and errors. The
 * region need not be attached, and cannot be closed (-EBUSY) until the request has ended.
 * -EBUSY: pages of a region whose memory a queue has registered cannot be discarded.
 * -EAGAIN: no thread can be started that would do it.
 */
int actmem_queue_populate(struct actmem_queue *queue, struct actmem_region *region,
			  uint64_t offset, uint64_t length, struct actmem_request *request);
int actmem_queue_discard(struct actmem_queue *queue, struct actmem_region *region,
			 uint64_t offset, uint64_t length, struct actmem_request *request);

/*
 * How a request ended. Nothing touches its memory any more.
 *
 * result 0: every byte of it is there. -ECANCELED: actmem_queue_cancel(). -ETIME: its
 * deadline passed. -ENODATA: the file ends before the range does. -ENOSPC and
 * others: as of the system call. Of a request that did not end well any part may
 * have been transferred.
 */
struct actmem_completion {
	uint64_t cookie;		/* of the request */
	uint64_t id;
	uint64_t bytes;			/* that were transferred, in whole blocks */
	int32_t result;			/* 0 or a negative errno */
	uint32_t reserved;
};

/*
 * Takes completions, up to @max, as soon as there is one; several threads may
 * wait, and each completion goes to one of them. Returns how many; 0 if no request
 * is under way. actmem_error() then tells of the last of them that ended badly, "" if
 * none did: take one at a time to have the words of each.
 *
 * -ETIMEDOUT  none within @timeout_ns from now (0: does not wait)
 * -EINVAL  max is 0
 *
 * @size: bytes of a completion as the caller was compiled.
 */
int actmem_queue_wait_sized(struct actmem_queue *queue, struct actmem_completion *completions,
			    unsigned int max, uint64_t timeout_ns, size_t size);

static inline int actmem_queue_wait(struct actmem_queue *queue,
				    struct actmem_completion *completions, unsigned int max,
				    uint64_t timeout_ns)
{
	return actmem_queue_wait_sized(queue, completions, max, timeout_ns, sizeof(*completions));
}

/*
 * An eventfd (eventfd(2)) that can be read once completions have come since it was last
 * read, for a program that waits for other things as well, by poll(2). It reads the
 * eventfd first, and then takes completions by actmem_queue_wait() with a timeout of 0
 * until there are none; there may be none to begin with. It is made at the first call,
 * close-on-exec and nonblocking, and is the queue's, which closes it when it is destroyed.
 *
 * A descriptor or a negative errno. -EMFILE, -ENFILE, -ENOMEM  no descriptor;  -EAGAIN  no
 * thread can be started, which workers need beside those that may hang in transfers
 */
int actmem_queue_eventfd(struct actmem_queue *queue);

/*
 * Has a request end early. Its completion comes in any case, with -ECANCELED, or
 * with what it came to if that was sooner. A transfer that the device has begun is
 * waited for. -ENOENT: it has ended.
 */
int actmem_queue_cancel(struct actmem_queue *queue, uint64_t id);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* ACTMEM_QUEUE_H */
