/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Internal interface of queues, which transfer data between files and regions.
 *
 * A request is transferred in blocks. Requests wait in the list of their set of files (struct
 * actmem_file), in order of arrival. Each set limits how many of its blocks are under way. An
 * engine takes the next block of a set's first request, and transfers it. When all blocks of a
 * request have ended, the request is complete.
 *
 * First read inside.h, which has the structs, and queue.c, which creates queues. file.c and
 * extent.c open and allocate files. request.c accepts requests, and blocks.c cuts them into blocks.
 * workers.c is the engine of threads. uring.h and uring.c are the engine of io_uring: ring.c sets
 * up the ring, and register.c registers regions with it. notify.c reports completions to callers
 * that do not wait for them.
 *
 * Locks: the queue's lock protects everything in a queue, except the blocks that an engine
 * transfers. A thread that takes the queue's lock may hold a store's lock, and no other. A thread
 * that holds the queue's lock may take the handles lock. Callers of an engine's wake, listen,
 * attend and cancel hold the queue's lock.
 */
#ifndef LIB_QUEUE_H
#define LIB_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_queue.h"

/*
 * Sets a function that a thread of the queue calls when requests have ended. @notify takes their
 * completions, with actmem_queue_wait() and a timeout of 0. The kernel completes a transfer in the
 * thread that started it, so the queue's thread is awake anyway. Waking another thread for each
 * completion would double the CPU time.
 *
 * If more requests end during the call, the queue calls @notify again, but never in two threads at
 * once. The thread that calls @notify holds no lock, and blocks all signals except those of its own
 * faults. The queue calls @notify at once for a request that ends without a transfer, such as at
 * its deadline, even if all transfers hang. @notify may submit and cancel requests. @notify must
 * not make a call that waits for the queue: attach, detach, open, close, destroy, or a wait with a
 * timeout. With io_uring, the queue starts and completes no transfers until @notify returns.
 * actmem_queue_destroy() waits until @notify returns.
 *
 * Call queue_notify_by() once, before the first request. Returns 0, or -EAGAIN with an error
 * message if no thread can be started.
 */
int queue_notify_by(struct actmem_queue *queue, void (*notify)(void *data), void *data);

/* Returns true if the region is attached. Takes the queue's lock. */
bool queue_is_attached(struct actmem_queue *queue, const struct actmem_region *region);

/*
 * Returns the path of the file that contains byte @offset of the set, and the offset in that file.
 */
const char *file_place(const struct actmem_file *file, uint64_t offset, uint64_t *file_offset);

/*
 * file_allocate() allocates disk space for a part of the set. file_punch() frees the disk space of
 * a part: the part's data is lost, and the files keep their length. Both functions can take
 * seconds. They return 0, or a negative errno with an error message. -EOPNOTSUPP: a file system
 * cannot free parts of files.
 */
int file_allocate(const struct actmem_file *file, uint64_t offset, uint64_t length);
int file_punch(const struct actmem_file *file, uint64_t offset, uint64_t length);

#endif /* LIB_QUEUE_H */
