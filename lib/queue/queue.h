/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of queues, which transfer between files and regions, and have pages made and
 * given back.
 *
 * A request lies on a lane, in order of arrival: each set of files has one, which bounds
 * how many blocks of it are under way, and so have the commands (populate, discard). An
 * engine cuts the next block off the first request of a lane, does it, and hands it
 * back; a request whose last block has come back is complete.
 *
 * Read inside.h first, which has the structs; then queue.c, which opens a queue; file.c
 * and extent.c, its files; request.c, which takes requests, and blocks.c, which cuts
 * them; workers.c, the engine of threads; uring.h with uring.c, the one of io_uring,
 * with ring.c, which makes the ring, and register.c, which registers regions with it;
 * notify.c, which tells of completions without being asked.
 *
 * Locks: all of a queue is under its lock, except the doing of blocks. It is held with a
 * store's at most, and itself around the handles lock. An engine's wake, listen, attend and
 * cancel are called under it.
 */
#ifndef LIB_QUEUE_H
#define LIB_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_queue.h"

/*
 * Has @notify called in a thread of the queue when requests have ended, to take their
 * completions there, by actmem_queue_wait() with a timeout of 0. To wake another thread
 * for each would take as much of the processor again: the kernel completes what a thread
 * has begun in that thread, so the queue's is awake in any case.
 *
 * It is called again if more have ended meanwhile, by one thread at a time, with no lock
 * held and no signal delivered but of its own faults; also at once for a request that
 * ends without a transfer, as by its deadline, though all transfers hang. It may begin and
 * cancel requests, and makes no call that waits for the queue: to attach, detach, open,
 * close, destroy, or wait. With io_uring the queue begins and ends nothing until it is
 * back. actmem_queue_destroy() returns when it is.
 *
 * Once, before the first request. 0, or -EAGAIN with words: no thread can be started.
 */
int queue_notify_by(struct actmem_queue *queue, void (*notify)(void *data), void *data);

/* Whether the region is attached. Takes the queue's lock. */
bool queue_is_attached(struct actmem_queue *queue, const struct actmem_region *region);

/* The path of the file that has byte @offset of the set, and the offset in it. */
const char *file_place(const struct actmem_file *file, uint64_t offset, uint64_t *file_offset);

/*
 * Has a part of the set allocated on the disks, and has them take it back: what is in it is
 * lost then, and the files are as long as before. Both may take long. 0 or -errno with
 * words; -EOPNOTSUPP: a file system takes nothing back.
 */
int file_allocate(const struct actmem_file *file, uint64_t offset, uint64_t length);
int file_punch(const struct actmem_file *file, uint64_t offset, uint64_t length);

#endif /* LIB_QUEUE_H */
