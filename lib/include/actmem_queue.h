/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Asynchronous transfers of libactmem: a queue reads files into regions (fill), and writes regions
 * to files (spill).
 *
 * All calls are thread-safe, except those that destroy a queue, close a file or detach a region.
 * During such a call, no other thread may use the queue, file or region that the call destroys,
 * closes or detaches. A queue starts threads, which block all signals.
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

struct actmem_queue;		/* accepts requests, returns completions */
struct actmem_file;		/* one file, or a set of striped files */

enum actmem_engine {
	ACTMEM_ENGINE_AUTO,	/* io_uring, or threads if the kernel refuses io_uring */
	ACTMEM_ENGINE_URING,	/* io_uring; if it is unavailable, the call fails */
	ACTMEM_ENGINE_WORKERS,	/* threads that call preadv2() and pwritev2() */
};

#define ACTMEM_QUEUE_DEPTH_MAX	256
#define ACTMEM_QUEUE_WORKERS_MAX	64
#define ACTMEM_BLOCK_BYTES_MAX	(1ULL << 30)

struct actmem_queue_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t block_bytes;		/* longest transfer; 0: depends on the file's devices */
	enum actmem_engine engine;
	uint32_t depth;			/* concurrent transfers per file; 0: depends on devices */
	uint32_t workers;		/* number of threads for WORKERS; 0: 8 threads */
	uint32_t reserved;		/* 0 */
};

/*
 * Creates a queue. If @options is NULL, the defaults apply.
 *
 * -EINVAL  block_bytes is above 1 GiB or not a multiple of 4096, depth is above 256, workers is
 *	above 64, the engine is unknown, or reserved is not 0
 * -ENOSYS, -EPERM, -EACCES  the caller wants URING, and the kernel lacks io_uring, or refuses it
 *	because of kernel.io_uring_disabled, seccomp or a security module
 * -ENOMEM, -EMFILE, -EAGAIN  no memory, descriptor or thread is available
 */
int actmem_queue_create(struct actmem *am, const struct actmem_queue_options *options,
			struct actmem_queue **queue);

/*
 * Destroys a queue. No other thread may use @queue during the call or later.
 *
 * -EBUSY  the queue has files, attached regions, or requests whose completion actmem_queue_wait()
 *	has not returned; nothing changes
 */
int actmem_queue_destroy(struct actmem_queue *queue);

/*
 * Returns a string that names the engine and says why it was chosen. An example is "workers:
 * io_uring is unavailable (...)". If the queue works without registered buffers, the string also
 * says so. The string is valid until the queue is destroyed. A later call can return a different
 * string.
 */
const char *actmem_queue_describe(const struct actmem_queue *queue);

struct actmem_queue_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t requests;		/* requests that have not completed yet */
	uint64_t completions;		/* not returned by actmem_queue_wait() yet */
	uint64_t files;
	uint64_t regions;		/* attached regions */
	uint64_t registered_bytes;	/* bytes of regions that are registered with io_uring */
	uint64_t requests_total;
	uint64_t failures_total;	/* requests that ended with an error */
	uint64_t filled_bytes_total;
	uint64_t spilled_bytes_total;
	uint64_t resumed_total;		/* short transfers that the queue resumed */
	enum actmem_engine engine;	/* the engine in use */
	uint32_t reserved;
};

/* Returns the current state of a queue, and totals since it was created. */
int actmem_queue_get_stats(struct actmem_queue *queue, struct actmem_queue_stats *stats);

/*
 * Do not register the region's memory with io_uring. The region's pages can then be discarded,
 * because the kernel pins them only during each transfer.
 */
#define ACTMEM_ATTACH_PLAIN	(1u << 0)

/*
 * Attaches a region to a queue. The queue can fill and spill only attached regions. The call maps
 * the region and registers its memory with io_uring, in pieces of at most 1 GiB. The call also
 * allocates missing pages. Registered pages count against RLIMIT_MEMLOCK twice, for the region and
 * for io_uring, and cannot be discarded.
 *
 * actmem_region_close() returns -EBUSY until the region is detached. On Linux 6.1, io_uring cannot
 * register memory of the driver backend. The call then attaches regions of the driver as if
 * ACTMEM_ATTACH_PLAIN were set, and actmem_queue_describe() says so. The engine WORKERS registers
 * no memory.
 *
 * -EEXIST  the region is already attached to this queue
 * -ENOMEM  the registered pages would exceed RLIMIT_MEMLOCK
 * -EMFILE  the attached regions of the queue would have more than 4096 pieces
 * -EPERM  the region was opened with ACTMEM_OPEN_READ
 * -EOPNOTSUPP  a runtime allocated the region's memory (see own_memory in actmem_runtime.h)
 */
int actmem_queue_attach(struct actmem_queue *queue, struct actmem_region *region, uint32_t flags);

/*
 * Detaches a region from a queue. When the call returns 0, the kernel no longer pins the region's
 * memory for this queue.
 *
 * -EBUSY  requests of the region have not completed
 * -ENOENT  the region is not attached
 */
int actmem_queue_detach(struct actmem_queue *queue, struct actmem_region *region);

/* Create the files with mode 0600; -EEXIST if one exists. */
#define ACTMEM_FILE_CREATE		(1u << 0)
/*
 * The paths are directories. Create a file without a name in each directory (O_TMPFILE). The kernel
 * removes the file when its last descriptor is closed, even if the process is killed.
 */
#define ACTMEM_FILE_TEMPORARY		(1u << 1)
#define ACTMEM_FILE_READ_ONLY		(1u << 2)
/*
 * Use the page cache for files that do not support direct I/O. Without this flag, opening such a
 * file fails.
 */
#define ACTMEM_FILE_ALLOW_BUFFERED	(1u << 3)
/*
 * Do not update the access time of the files when they are read (O_NOATIME). The flag saves a few
 * microseconds per block. If another user owns a file, actmem_file_open() returns -EPERM. TEMPORARY
 * implies this flag.
 */
#define ACTMEM_FILE_NO_ATIME		(1u << 4)

#define ACTMEM_FILE_PATHS_MAX	64

/*
 * Options of a set of files. Byte n of the set is in file (n / stripe_bytes) mod path_count. A file
 * can be a block device.
 */
struct actmem_file_options {
	size_t size;			/* set by ACTMEM_INIT */
	const char *const *paths;
	uint32_t path_count;		/* 1 to 64 */
	uint32_t flags;			/* ACTMEM_FILE_* */
	uint64_t stripe_bytes;		/* a multiple of the files' alignment; 0: block_bytes */
	uint64_t length;		/* bytes that the call allocates on the disks; 0: none */
};

/* How the library opened a set of files. */
struct actmem_file_info {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t alignment;		/* required alignment of lengths and file offsets */
	uint64_t memory_alignment;	/* required alignment of offsets in a region */
	uint64_t block_bytes;		/* longer requests are split into blocks of this length */
	uint64_t stripe_bytes;
	uint64_t length;		/* present length of the set, in bytes */
	uint32_t depth;			/* concurrent transfers of blocks */
	uint32_t direct;		/* 1: direct I/O; 0: through the page cache */
	uint32_t rotational;		/* 1: the set has a rotational device */
	uint32_t reserved;
};

/*
 * Opens a set of files with direct I/O, for transfers by a queue. If the call fails, it removes the
 * files that it created.
 *
 * -EINVAL  an option is wrong, or a file does not support direct I/O (see
 *	ACTMEM_FILE_ALLOW_BUFFERED)
 * -EEXIST  a file exists (ACTMEM_FILE_CREATE)
 * -EPERM  another user owns a file (ACTMEM_FILE_NO_ATIME)
 * -ENOSPC  the disks have less free space than length
 * -EFBIG  a file would be longer than RLIMIT_FSIZE permits
 * -EMFILE  a queue with io_uring would have more than 256 files
 * others  the errors of open(2)
 */
int actmem_file_open(struct actmem_queue *queue, const struct actmem_file_options *options,
		     struct actmem_file **file);

/*
 * Closes a set of files. On Linux 6.1, the kernel keeps the files open for up to a second after
 * this call, unless the queue is destroyed earlier. While the files are open, their file system
 * cannot be unmounted.
 *
 * -EBUSY  requests of the set have not completed
 */
int actmem_file_close(struct actmem_file *file);

/* Returns how a set of files was opened, and its current length. */
int actmem_file_get_info(struct actmem_file *file, struct actmem_file_info *info);

/* Options of a request. A call without options passes NULL. */
struct actmem_request {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t cookie;		/* copied to the completion */
	uint64_t deadline_ns;		/* CLOCK_MONOTONIC; 0: none */
	uint64_t id;			/* set by the call, for actmem_queue_cancel() */
};

/*
 * Submits a transfer from a file into a region (fill), or from a region to a file (spill). If
 * @request is NULL, the request has no options. The region must be attached. Offsets and lengths
 * must be multiples of the alignments that actmem_file_get_info() returns.
 *
 * The call does not wait for the transfer: actmem_queue_wait() returns the result of the request.
 * Until that call has returned the result, the caller must not touch the memory of the transfer.
 * The queue starts the requests of a file in the order of their submission, but they can complete
 * in any order. If the ranges of two requests overlap, the caller must wait until the first request
 * has completed before it submits the second.
 *
 * -EINVAL  a wrong range or alignment, a region that is not attached, or a file of another queue
 * -EBADF  a spill to a file that was opened with ACTMEM_FILE_READ_ONLY
 * -ENOMEM  no memory is available
 */
int actmem_queue_fill(struct actmem_queue *queue, struct actmem_file *file, uint64_t file_offset,
		      struct actmem_region *region, uint64_t offset, uint64_t length,
		      struct actmem_request *request);
int actmem_queue_spill(struct actmem_queue *queue, struct actmem_file *file, uint64_t file_offset,
		       struct actmem_region *region, uint64_t offset, uint64_t length,
		       struct actmem_request *request);

/*
 * The result of a request. After actmem_queue_wait() has returned the result, neither the kernel
 * nor the queue accesses the request's memory any more.
 *
 * If @result is 0, all bytes were transferred. -ECANCELED: actmem_queue_cancel() cancelled the
 * request. -ETIME: the deadline passed. -ENODATA: the file ends before the end of the range.
 * -ENOSPC and others: a system call failed with this error. If a request failed, it is unknown
 * which bytes were transferred.
 */
struct actmem_completion {
	uint64_t cookie;		/* the request's cookie */
	uint64_t id;
	uint64_t bytes;			/* length of the blocks that were transferred completely */
	int32_t result;			/* 0 or a negative errno */
	uint32_t reserved;
};

/*
 * Waits for completions. The call stores up to @max of them in @completions. Several threads may
 * wait; each completion goes to one of them. If requests in @completions failed, actmem_error()
 * returns the message of the last failed request in @completions. If no request failed,
 * actmem_error() returns "". A caller that needs the message of each failure passes 1 as @max.
 * @size: the caller's sizeof(struct actmem_completion). actmem_queue_wait() passes this size.
 *
 * > 0  the number of completions
 * 0  no request is outstanding
 * -ETIMEDOUT  no completion within @timeout_ns; if @timeout_ns is 0, the call does not wait
 * -EINVAL  @max is 0 or above INT32_MAX
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
 * Returns an eventfd(2) that becomes readable when a request completes. A program can wait for this
 * descriptor with poll(2). When poll(2) returns, the program first reads the eventfd. The program
 * then calls actmem_queue_wait() with a timeout of 0 until a call returns no completion. Even the
 * first of these calls can return no completion. The descriptor is close-on-exec and nonblocking.
 * The queue owns the descriptor, and closes it when the queue is destroyed.
 *
 * >= 0  the descriptor
 * -EMFILE, -ENFILE, -ENOMEM  no descriptor is available
 * -EAGAIN  the engine WORKERS cannot start the thread that signals the eventfd
 */
int actmem_queue_eventfd(struct actmem_queue *queue);

/*
 * Cancels a request. The request always completes: with -ECANCELED, or with its own result if it
 * finished first. If the device has started a transfer of the request, the request completes only
 * after that transfer, which is not interrupted.
 *
 * -ENOENT  the request has completed
 */
int actmem_queue_cancel(struct actmem_queue *queue, uint64_t id);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* ACTMEM_QUEUE_H */
