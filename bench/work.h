/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A thread fills memory of its own, or verifies it, at the pace of the bytes that the
 * disks move, as a step does. It runs beside a measurement of the disks, which never
 * waits for it.
 */
#ifndef ACTMEM_WORK_H
#define ACTMEM_WORK_H

#include <stdbool.h>
#include <stdint.h>

struct work;

/* Has memory of so many bytes at least. NULL: no memory, or no thread, as errno says. */
struct work *work_open(uint64_t bytes);
void work_close(struct work *work);

/* From now on fills, or verifies, @part bytes for each that work_owe() tells of. */
void work_begin(struct work *work, bool fills, double part);
void work_owe(struct work *work, uint64_t bytes);
/* Leaves what is still owed undone; what was done since work_begin(), in bytes. */
uint64_t work_end(struct work *work);

#endif
