/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Counts puts and takes, in all and by device. The lock of saved.c guards all of it but
 * the counts of transfers.
 */
#ifndef ACTMEM_XLA_COUNTS_H
#define ACTMEM_XLA_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "xla/actmem_xla.h"

extern struct actmem_xla_stats counts;
extern struct actmem_xla_device_stats device_counts[ACTMEM_XLA_DEVICES_MAX];

/* Its totals are added to atomically. */
extern struct actmem_xla_transfer_stats transfer_counts[ACTMEM_XLA_DEVICES_MAX];

#define TRANSFER_COUNT(device, name, value)	\
	__atomic_add_fetch(&transfer_counts[device].name, (value), __ATOMIC_RELAXED)

/* A block is live from its put to its end. */
void counts_put(uint32_t device, uint64_t bytes, int64_t run);
void counts_put_failed(uint32_t device, uint64_t bytes, int64_t run);
void counts_end(uint32_t device, uint64_t bytes);

void counts_take(uint32_t device, uint64_t bytes, int64_t run);
void counts_take_failed(uint32_t device, uint64_t bytes, int64_t run);

/* Writes no more than the caller was compiled with; -EINVAL: @to_size was not set. */
int counts_copy(void *to, size_t to_size, const void *from, size_t size);

/* Adds the totals of a store that was ended to those of another one. */
void counts_add_store(struct actmem_store_stats *sum, const struct actmem_store_stats *other);

/* Adds all of a store that is there at the same time, its peaks included. */
void counts_sum_store(struct actmem_store_stats *sum, const struct actmem_store_stats *other);

#endif /* ACTMEM_XLA_COUNTS_H */
