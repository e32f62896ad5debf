/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the pools know of each other: pool.c, the pages; pool_fill.c,
 * the worker; pool_pressure.c, what makes pools smaller.
 */
#ifndef _ACTMEM_POOL_H
#define _ACTMEM_POOL_H

#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm_types.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

/**
 * struct actmem_pool - the warm pages of one node
 * @lock: see there; held for an instant only
 * @ready: pages that are zero
 * @dirty: pages still to be zeroed
 * @ready_count: length of @ready
 * @held: pages in @ready and @dirty, and one that the worker has in hand
 * @lent: pages that regions have taken and are to give back
 * @target: pages to hold and to have lent, in all
 * @floor: pages of them that memory pressure leaves, if @target is not less
 * @paused_until: jiffies, memory pressure was felt not long before
 * @filling: the low mark has been passed, and the target not yet reached
 * @stalled: nothing has been found for long, and the administrator been told
 * @kicked: there is something to do, or to think over
 * @wait: where the worker waits to be kicked
 * @retry: jiffies to wait after the next fill that finds nothing; the worker's
 * @worker: NULL as long as there has been no target; protected by the lock of
 *	those who change settings
 * @node: whose pages these are
 */
struct actmem_pool {
	/* Protects what follows, up to @wait. */
	spinlock_t lock;
	struct list_head ready;
	struct list_head dirty;
	unsigned long ready_count;
	unsigned long held;
	unsigned long lent;
	unsigned long target;
	unsigned long floor;
	unsigned long paused_until;
	bool filling;
	bool stalled;
	bool kicked;
	wait_queue_head_t wait;
	long retry;
	struct task_struct *worker;
	int node;
};

/* By node. */
extern struct actmem_pool *actmem_pools;

static inline unsigned long actmem_pool_size(const struct actmem_pool *pool)
{
	lockdep_assert_held(&pool->lock);
	return pool->held + pool->lent;
}

static inline unsigned long actmem_pool_least(const struct actmem_pool *pool)
{
	lockdep_assert_held(&pool->lock);
	return min(pool->floor, pool->target);
}

static inline bool actmem_pool_is_paused(const struct actmem_pool *pool)
{
	lockdep_assert_held(&pool->lock);
	return time_before(jiffies, pool->paused_until);
}

static inline struct folio *actmem_pool_pop(struct list_head *list)
{
	struct folio *folio = list_first_entry_or_null(list, struct folio, lru);

	if (folio)
		list_del(&folio->lru);
	return folio;
}

/* pool.c */
bool actmem_pool_zero(struct folio *folio);
void actmem_pool_release(struct folio *folio);
unsigned long actmem_pool_trim(struct actmem_pool *pool, unsigned long size);
void actmem_pools_fit(void);

/* pool_fill.c */
void actmem_pool_worker_init(struct actmem_pool *pool);
int actmem_pool_worker_start(struct actmem_pool *pool);
void actmem_pool_worker_stop(struct actmem_pool *pool);
void actmem_pool_kick(struct actmem_pool *pool);
void actmem_pool_retry_now(struct actmem_pool *pool);

/* pool_pressure.c */
int actmem_pool_pressure_init(void);
void actmem_pool_pressure_exit(void);

#endif /* _ACTMEM_POOL_H */
