/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes data about this process: its counters, its waits, and the placement and mapping of its
 * memfd regions, which only the process itself knows.
 *
 * Each record has a sequence number (sequence.h), and one writer at a time.
 */
#ifndef LIB_WATCH_STATS_H
#define LIB_WATCH_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actmem.h"
#include "actmem_store.h"
#include "watch/publish.h"
#include "watch/waits.h"

#define STATS_RECORDS		4096
#define STATS_HEADER_BYTES	4096
#define STATS_RECORD_BYTES	12288
#define STATS_FILE_BYTES	(STATS_HEADER_BYTES + (uint64_t)STATS_RECORDS * STATS_RECORD_BYTES)

static const struct published_kind published_stats = {
	.label = "actmem-stats", .magic = 0x7374617473414d31ULL, .version = 5,
	.bytes = STATS_FILE_BYTES,
};

/* Counters of a handle. Any thread can change them, without a lock. */
struct counters {
	_Atomic uint64_t regions;
	_Atomic uint64_t region_bytes;
	_Atomic uint64_t region_bytes_peak;
	_Atomic uint64_t regions_mapped;
	_Atomic uint64_t regions_total;
	_Atomic uint64_t heaps;
	_Atomic uint64_t blocks;
	_Atomic uint64_t block_bytes;
	_Atomic uint64_t block_bytes_peak;
	_Atomic uint64_t blocks_total;
	_Atomic uint64_t fallbacks_total;
	_Atomic uint64_t stores;
	_Atomic uint64_t spilled_bytes;
	_Atomic uint64_t spilling_stores;	/* stores that spill, and so can return memory */
};

/*
 * Totals of all stores of the handle: the fields from puts_total to failed_fills_total of struct
 * actmem_store_stats, in the same order. The order never changes.
 */
#define TRAFFIC_FIRST	offsetof(struct actmem_store_stats, puts_total)
#define TRAFFIC_TOTALS	((offsetof(struct actmem_store_stats, failed_fills_total) - \
			  TRAFFIC_FIRST) / sizeof(uint64_t) + 1)

struct published_traffic {
	uint64_t count;			/* TRAFFIC_TOTALS; 0 if an older library has no totals */
	_Atomic uint64_t totals[TRAFFIC_TOTALS];
};

struct stats_header {
	struct published_start start;
	uint32_t backend;
	_Atomic uint32_t records;	/* records from this number on are unused */
	_Atomic uint64_t limit_bytes;	/* limit of all regions (`actmem limit`); 0: none */
	struct counters counters;
	struct published_waits waits;
	struct published_traffic traffic;
};

struct stats_record {
	_Atomic uint64_t sequence;
	uint64_t device;		/* with @id, identifies the region's file; 0: unused */
	uint64_t id;
	uint64_t page_bytes;
	uint64_t mapped_bytes;
	uint64_t pinned_bytes;
	uint32_t pages;
	uint32_t received;
	uint64_t node_bytes[ACTMEM_NODES_MAX];
};

_Static_assert(sizeof(struct stats_header) <= STATS_HEADER_BYTES, "the header fits");
_Static_assert(sizeof(struct stats_record) <= STATS_RECORD_BYTES, "a record fits");

/* The published file of one handle, for the process that writes it. */
struct stats {
	int fd;
	struct stats_header *header;
	uint64_t taken[STATS_RECORDS / 64];
};

/* Returns 0, or -errno with an error message. */
int stats_open(struct stats *stats, enum actmem_backend backend);
void stats_close(struct stats *stats);

/*
 * Publishes a region. @device and @info->id identify the region's file. @info->node_bytes has
 * ACTMEM_NODES_MAX elements. Returns -EMFILE with an error message if there are too many regions.
 * The caller serializes stats_add() and stats_remove() of the same @stats.
 */
int stats_add(struct stats *stats, uint64_t device, bool received,
	      const struct actmem_region_info *info, struct stats_record **record);
void stats_remove(struct stats *stats, struct stats_record *record);

/* The caller serializes writers of the same record. */
void stats_set_pages(struct stats_record *record, uint64_t pinned_bytes,
		     const uint64_t node_bytes[ACTMEM_NODES_MAX]);
void stats_set_mapped(struct stats_record *record, uint64_t mapped_bytes);

static inline uint64_t counter_add(_Atomic uint64_t *counter, uint64_t amount)
{
	return atomic_fetch_add_explicit(counter, amount, memory_order_relaxed) + amount;
}

static inline void counter_subtract(_Atomic uint64_t *counter, uint64_t amount)
{
	atomic_fetch_sub_explicit(counter, amount, memory_order_relaxed);
}

static inline void counter_raise(_Atomic uint64_t *peak, uint64_t value)
{
	uint64_t seen = atomic_load_explicit(peak, memory_order_relaxed);

	while (seen < value &&
	       !atomic_compare_exchange_weak_explicit(peak, &seen, value, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

#endif /* LIB_WATCH_STATS_H */
