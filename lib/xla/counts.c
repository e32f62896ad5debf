/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Counts the values that programs put and take; see counts.h.
 */
#include <errno.h>
#include <string.h>

#include "xla/counts.h"

struct actmem_xla_stats counts = {
	.generations_max = ACTMEM_XLA_GENERATIONS,
};
struct actmem_xla_device_stats device_counts[ACTMEM_XLA_DEVICES_MAX];
struct actmem_xla_transfer_stats transfer_counts[ACTMEM_XLA_DEVICES_MAX];

static int64_t last_put_run = -1;
static int64_t last_take_run = -1;

static void raise_to(uint64_t *peak, uint64_t value)
{
	if (*peak < value)
		*peak = value;
}

void counts_begin(uint32_t device, uint64_t bytes)
{
	struct actmem_xla_device_stats *its = &device_counts[device];

	counts.live_blocks++;
	counts.live_bytes += bytes;
	raise_to(&counts.live_bytes_peak, counts.live_bytes);
	its->live_bytes += bytes;
	raise_to(&its->live_bytes_peak, its->live_bytes);
}

void counts_put(uint32_t device, uint64_t bytes, int64_t run)
{
	counts.puts_total++;
	counts.put_bytes_total += bytes;
	device_counts[device].put_bytes_total += bytes;
	if (last_put_run != run) {
		last_put_run = run;
		counts.last_run_put_bytes = 0;
	}
	counts.last_run_put_bytes += bytes;
}

void counts_end(uint32_t device, uint64_t bytes)
{
	counts.live_blocks--;
	counts.live_bytes -= bytes;
	device_counts[device].live_bytes -= bytes;
}

void counts_take(uint32_t device, uint64_t bytes, int64_t run)
{
	counts.takes_total++;
	counts.take_bytes_total += bytes;
	device_counts[device].take_bytes_total += bytes;
	if (last_take_run != run) {
		last_take_run = run;
		counts.last_run_take_bytes = 0;
	}
	counts.last_run_take_bytes += bytes;
}

int counts_copy(void *to, size_t to_size, const void *from, size_t size)
{
	if (to_size <= sizeof(size_t))
		return -EINVAL;
	if (to_size < size)
		size = to_size;
	memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t),
	       size - sizeof(size_t));
	return 0;
}

void counts_add_store(struct actmem_store_stats *sum, const struct actmem_store_stats *other)
{
	sum->puts_total += other->puts_total;
	sum->takes_total += other->takes_total;
	sum->hits_total += other->hits_total;
	sum->handed_over_total += other->handed_over_total;
	sum->late_total += other->late_total;
	sum->misses_total += other->misses_total;
	sum->put_stall_ns_total += other->put_stall_ns_total;
	sum->take_stall_ns_total += other->take_stall_ns_total;
	sum->spilled_bytes_total += other->spilled_bytes_total;
	sum->filled_bytes_total += other->filled_bytes_total;
	sum->wasted_bytes_total += other->wasted_bytes_total;
	sum->failed_spills_total += other->failed_spills_total;
	sum->failed_fills_total += other->failed_fills_total;
	sum->checksums_total += other->checksums_total;
	sum->given_back_bytes_total += other->given_back_bytes_total;
	raise_to(&sum->block_bytes_peak, other->block_bytes_peak);
	raise_to(&sum->memory_bytes_peak, other->memory_bytes_peak);
	raise_to(&sum->spilled_bytes_peak, other->spilled_bytes_peak);
	raise_to(&sum->file_bytes_peak, other->file_bytes_peak);
}

/* All fields after size are 64-bit numbers. */
void counts_sum_store(struct actmem_store_stats *sum, const struct actmem_store_stats *other)
{
	const uint64_t *from = &other->budget_bytes;
	uint64_t *to = &sum->budget_bytes;
	size_t i;

	for (i = 0; i < sizeof(*sum) / sizeof(*to) - 1; i++)
		to[i] += from[i];
}
