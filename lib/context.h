/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * An open backend with its regions; what fork() does to them.
 *
 * Locks, outermost first: a heap's grow_lock, a heap's lock or a region's
 * lock, the handles lock.
 */
#ifndef LIB_CONTEXT_H
#define LIB_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "actmem.h"
#include "backend.h"

#define DESCRIPTION_MAX	512

struct actmem {
	struct actmem *next, *previous;	/* under the handles lock, as all lists */
	struct actmem_region *regions;
	unsigned int heaps;		/* under the handles lock */
	unsigned int generation;
	const struct backend *backend;
	int device;
	struct actmem_options options;
	struct counters *counters;
	char description[DESCRIPTION_MAX];
};

struct actmem_region {
	struct actmem_region *next, *previous;
	struct actmem *am;
	pthread_mutex_t lock;
	struct backing backing;
	unsigned int maps;		/* under lock */
};

/*
 * The counters of one actmem. Written by any thread without a lock.
 */
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
};

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

void handles_lock(void);
void handles_unlock(void);

/* 0; -EOWNERDEAD with words in a child of the process that opened @am. */
int check_owner(const struct actmem *am);

#endif /* LIB_CONTEXT_H */
