/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Runs a thread that fills or verifies memory, as a step of actmem replay does. The thread works at
 * the rate of the disks' transfers. The measurement of the disks never waits for this thread.
 */
#ifndef ACTMEM_WORK_H
#define ACTMEM_WORK_H

#include <stdbool.h>
#include <stdint.h>

struct work;

/* Starts a thread with at least @bytes of memory. Returns NULL with errno set. */
struct work *work_open(uint64_t bytes);
void work_close(struct work *work);

/* From now on, the thread fills or verifies @part bytes for each byte that work_owe() announces. */
void work_begin(struct work *work, bool fills, double part);
void work_owe(struct work *work, uint64_t bytes);
/*
 * Stops the work, even if the thread has not finished it. Returns the number of bytes that the
 * thread filled or verified since work_begin().
 */
uint64_t work_end(struct work *work);

#endif
