/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Counts the values that programs store and take, in total and by device. saved_lock (generation.h)
 * guards all counts except transfer_counts.
 */
#ifndef LIB_XLA_COUNTS_H
#define LIB_XLA_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "xla/actmem_xla.h"

extern struct actmem_xla_stats counts;
extern struct actmem_xla_device_stats device_counts[ACTMEM_XLA_DEVICES_MAX];

/* Threads add to these totals atomically, without the lock. */
extern struct actmem_xla_transfer_stats transfer_counts[ACTMEM_XLA_DEVICES_MAX];

#define TRANSFER_COUNT(device, name, value)	\
	__atomic_add_fetch(&transfer_counts[device].name, (value), __ATOMIC_RELAXED)

/* A block is live from saved_begin() until it leaves the table (saved.h). */
void counts_begin(uint32_t device, uint64_t bytes);
void counts_end(uint32_t device, uint64_t bytes);

/* Count a block whose memory was reserved, and a block that was found for actmem_take. */
void counts_put(uint32_t device, uint64_t bytes, int64_t run);
void counts_take(uint32_t device, uint64_t bytes, int64_t run);

/*
 * Copies a struct of statistics, except its first field, the size. @to_size is the size of the
 * struct with which the caller was compiled; nothing beyond that size is written. Returns 0, or
 * -EINVAL if @to_size was not set.
 */
int counts_copy(void *to, size_t to_size, const void *from, size_t size);

/*
 * Adds the totals of @other, a store that has ended, to @sum. Sets each peak in @sum to the higher
 * of the peaks in @sum and @other.
 */
void counts_add_store(struct actmem_store_stats *sum, const struct actmem_store_stats *other);

/* Adds all fields of @other to @sum. Peaks are added too, because both stores exist together. */
void counts_sum_store(struct actmem_store_stats *sum, const struct actmem_store_stats *other);

#endif /* LIB_XLA_COUNTS_H */
