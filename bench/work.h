/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a step does to memory while the disks move it, done beside a measurement of the
 * disks: a thread that fills memory of its own, or verifies it, at the pace of what is
 * moved, and that nothing waits for.
 */
#ifndef ACTMEM_WORK_H
#define ACTMEM_WORK_H

#include <stdbool.h>
#include <stdint.h>

struct work;

/* Of so many bytes at least. NULL: no memory, or no thread, and errno says which. */
struct work *work_open(uint64_t bytes);
void work_close(struct work *work);

/* From now on fills, or verifies, @part bytes for each that work_owe() tells of. */
void work_begin(struct work *work, bool fills, double part);
void work_owe(struct work *work, uint64_t bytes);
/* Leaves what is still owed undone; what was done since work_begin(), in bytes. */
uint64_t work_end(struct work *work);

#endif
