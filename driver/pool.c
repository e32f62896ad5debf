// SPDX-License-Identifier: GPL-2.0
/*
 * Warm pools: for each node, huge pages that are zero already, so that making
 * a region zeroes nothing.
 *
 * A pool is the administrator's reservation, as hugetlb's is: no more pages than
 * its target belong to it, held or lent. One that it holds is ready, or dirty,
 * or in the hands of the worker, and the pool has the only reference to it.
 * One that it has lent bears a mark and is a region's; it comes back when that
 * gives it up, unless the pool is too large by then. Pages that are not the
 * pool's go back to the page allocator.
 *
 * Nothing returns that anyone may still reach: who gives a page back has frozen
 * its count at one reference, his own, after nobody could find it any more.
 *
 * Pages of a pool are not charged to memory cgroups, neither in it nor in a
 * region.
 */
#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "actmem.h"
#include "pool.h"
#include "trace.h"

#define TRIM_BATCH	64

struct actmem_pool *actmem_pools;

/* One who changes settings at a time. */
static DEFINE_MUTEX(settings_lock);

static struct folio *pop_ready(struct actmem_pool *pool)
{
	struct folio *folio = actmem_pool_pop(&pool->ready);

	if (folio)
		pool->ready_count--;
	return folio;
}

/* To the page allocator, which might hand it out again if the hardware has erred in it. */
void actmem_pool_release(struct folio *folio)
{
	if (actmem_poison_is_suspected() && actmem_page_has_failed(folio))
		actmem_quarantine(folio);
	else
		folio_put(folio);
}

/*
 * Gives pages to the page allocator until the pool is no larger than @size, or
 * nothing is left but what is lent.
 */
unsigned long actmem_pool_trim(struct actmem_pool *pool, unsigned long size)
{
	unsigned long freed = 0;
	unsigned int count;

	do {
		struct folio *folio;
		LIST_HEAD(surplus);

		spin_lock(&pool->lock);
		for (count = 0; count < TRIM_BATCH && actmem_pool_size(pool) > size; count++) {
			folio = actmem_pool_pop(&pool->dirty) ?: pop_ready(pool);
			if (!folio)
				break;
			pool->held--;
			list_add(&folio->lru, &surplus);
		}
		spin_unlock(&pool->lock);
		while ((folio = actmem_pool_pop(&surplus)))
			actmem_pool_release(folio);
		freed += count;
		cond_resched();
	} while (count == TRIM_BATCH);
	return freed;
}

/* False if the hardware has reported an error in it, and it is out of use. */
bool actmem_pool_zero(struct folio *folio)
{
	u64 began = actmem_latency_begin(trace_actmem_zero_enabled());
	long i;

	for (i = 0; i < folio_nr_pages(folio); i++) {
		if (PageHWPoison(folio_page(folio, i))) {
			actmem_quarantine(folio);
			return false;
		}
		clear_highpage(folio_page(folio, i));
	}
	trace_actmem_zero(folio_nid(folio), ACTMEM_PAGE_BYTES, actmem_latency_end(began));
	return true;
}

static struct folio *lend(struct actmem_pool *pool, struct folio *folio)
{
	lockdep_assert_held(&pool->lock);
	if (folio) {
		actmem_page_note(folio, ACTMEM_PAGE_LENT);
		pool->held--;
		pool->lent++;
		if (!pool->held)
			trace_actmem_pool_empty(pool->node, pool->target);
	}
	return folio;
}

bool actmem_pool_has_lent(const struct folio *folio)
{
	return actmem_page_notes_of(folio) & ACTMEM_PAGE_LENT;
}

/* A page that was lent has been set apart; the pool is to get another one. */
static void write_off(struct actmem_pool *pool)
{
	spin_lock(&pool->lock);
	pool->lent--;
	spin_unlock(&pool->lock);
	actmem_pool_kick(pool);
}

/* A page of zeros that nobody pays for; NULL if the pool has none ready. */
struct folio *actmem_pool_take_ready(int node)
{
	struct actmem_pool *pool = &actmem_pools[node];
	struct folio *folio;

	while (READ_ONCE(pool->ready_count)) {
		spin_lock(&pool->lock);
		folio = lend(pool, pop_ready(pool));
		spin_unlock(&pool->lock);
		if (!folio || !actmem_poison_is_suspected() || !actmem_page_has_failed(folio))
			return folio;
		actmem_quarantine(folio);
		write_off(pool);
	}
	return NULL;
}

/* The same, but a page that is not zero yet is zeroed for it. */
struct folio *actmem_pool_take(int node)
{
	struct actmem_pool *pool = &actmem_pools[node];
	struct folio *folio;

	while (READ_ONCE(pool->held)) {
		folio = actmem_pool_take_ready(node);
		if (folio)
			return folio;
		spin_lock(&pool->lock);
		folio = lend(pool, actmem_pool_pop(&pool->dirty));
		spin_unlock(&pool->lock);
		if (!folio)
			break;
		if (actmem_pool_zero(folio))
			return folio;
		write_off(pool);
	}
	return NULL;
}

/* Of a page that was lent; false if the pool does not want it any more. */
static bool take_back(struct actmem_pool *pool, struct folio *folio, bool is_usable)
{
	spin_lock(&pool->lock);
	if (actmem_pool_size(pool) > (actmem_pool_is_paused(pool) ? actmem_pool_least(pool) :
								    pool->target))
		is_usable = false;
	if (is_usable) {
		list_add(&folio->lru, &pool->dirty);
		pool->held++;
	}
	pool->lent--;
	spin_unlock(&pool->lock);
	/* To have it zeroed, or to get another when that is possible. */
	actmem_pool_kick(pool);
	return is_usable;
}

/*
 * Takes over a page that nobody else can reach, to where it came from: the pool
 * of its node or the page allocator.
 */
void actmem_pool_give(struct folio *folio)
{
	struct actmem_pool *pool = &actmem_pools[folio_nid(folio)];
	bool was_lent = actmem_pool_has_lent(folio);
	bool poisoned = actmem_page_notes_of(folio) & ACTMEM_PAGE_POISONED ||
			actmem_page_has_failed(folio);

	if (!poisoned)
		actmem_page_note(folio, 0);
	if (was_lent) {
		folio_clear_referenced(folio);
		folio_clear_dirty(folio);
		/* The page allocator knows what to do with a page that is still locked. */
		if (take_back(pool, folio, !poisoned && !folio_test_mlocked(folio)))
			return;
	}
	if (poisoned)
		actmem_quarantine(folio);
	else
		folio_put(folio);
}

static void set_target(struct actmem_pool *pool, unsigned long target)
{
	spin_lock(&pool->lock);
	pool->target = target;
	pool->filling = actmem_pool_size(pool) < target;
	pool->paused_until = jiffies;
	pool->stalled = false;
	spin_unlock(&pool->lock);
	actmem_pool_trim(pool, target);
	actmem_pool_retry_now(pool);
}

static int check_bytes(int node, u64 bytes)
{
	if (!IS_ALIGNED(bytes, ACTMEM_PAGE_BYTES))
		return -EINVAL;
	return bytes / ACTMEM_PAGE_BYTES > actmem_node_capacity(node) ? -ERANGE : 0;
}

/*
 * How much belongs to the pool from now on. EINVAL if that is no multiple of
 * ACTMEM_PAGE_BYTES, ERANGE if the node has less memory.
 */
int actmem_pool_set_target(int node, u64 bytes)
{
	struct actmem_pool *pool = &actmem_pools[node];
	int err;

	mutex_lock(&settings_lock);
	err = check_bytes(node, bytes);
	if (!err && bytes)
		err = actmem_pool_worker_start(pool);
	if (!err)
		set_target(pool, bytes / ACTMEM_PAGE_BYTES);
	mutex_unlock(&settings_lock);
	return err;
}

/* How much of it memory pressure leaves. The errors are the same. */
int actmem_pool_set_floor(int node, u64 bytes)
{
	struct actmem_pool *pool = &actmem_pools[node];
	int err = check_bytes(node, bytes);

	if (err)
		return err;
	spin_lock(&pool->lock);
	pool->floor = bytes / ACTMEM_PAGE_BYTES;
	spin_unlock(&pool->lock);
	return 0;
}

/* Nodes have lost memory: none is to have more than is left. */
void actmem_pools_fit(void)
{
	int node;

	mutex_lock(&settings_lock);
	for_each_node(node) {
		unsigned long capacity = actmem_node_capacity(node);

		if (actmem_pools[node].target > capacity) {
			pr_warn("actmem: node %d has %llu bytes left, less than its pool of %llu, which shrinks\n",
				node, capacity * ACTMEM_PAGE_BYTES, actmem_pool_target(node));
			set_target(&actmem_pools[node], capacity);
		}
	}
	mutex_unlock(&settings_lock);
}

u64 actmem_pool_target(int node)
{
	return READ_ONCE(actmem_pools[node].target) * ACTMEM_PAGE_BYTES;
}

u64 actmem_pool_floor(int node)
{
	return READ_ONCE(actmem_pools[node].floor) * ACTMEM_PAGE_BYTES;
}

u64 actmem_pool_ready(int node)
{
	return READ_ONCE(actmem_pools[node].ready_count) * ACTMEM_PAGE_BYTES;
}

u64 actmem_pool_lent(int node)
{
	return READ_ONCE(actmem_pools[node].lent) * ACTMEM_PAGE_BYTES;
}

/* Pages, ready or not. */
unsigned long actmem_pool_held(int node)
{
	return READ_ONCE(actmem_pools[node].held);
}

int actmem_pool_init(void)
{
	int node, err;

	actmem_pools = kcalloc(nr_node_ids, sizeof(*actmem_pools), GFP_KERNEL);
	if (!actmem_pools)
		return -ENOMEM;
	for (node = 0; node < nr_node_ids; node++) {
		struct actmem_pool *pool = &actmem_pools[node];

		spin_lock_init(&pool->lock);
		INIT_LIST_HEAD(&pool->ready);
		INIT_LIST_HEAD(&pool->dirty);
		pool->paused_until = jiffies;
		pool->node = node;
		actmem_pool_worker_init(pool);
	}
	err = actmem_pool_pressure_init();
	if (err)
		kfree(actmem_pools);
	return err;
}

/* No region is left that could give pages back. */
void actmem_pool_exit(void)
{
	int node;

	actmem_pool_pressure_exit();
	for (node = 0; node < nr_node_ids; node++) {
		actmem_pool_worker_stop(&actmem_pools[node]);
		actmem_pool_trim(&actmem_pools[node], 0);
		WARN_ON_ONCE(actmem_pools[node].held || actmem_pools[node].lent);
	}
	kfree(actmem_pools);
}
