// SPDX-License-Identifier: GPL-2.0
/*
 * Pools: for each node, huge pages that are zero already, so that making a region
 * zeroes nothing.
 *
 * A pool is the administrator's reservation, as hugetlb's is: no more pages than its
 * target belong to it, held or lent, and nothing but another target takes them away.
 * One that it holds is ready, or dirty, or in the hands of the worker, and the pool
 * has the only reference to it. One that it has lent bears a mark and is a region's;
 * it comes back when that gives it up, unless the pool is too large by then. Pages
 * that are not the pool's go back to the page allocator.
 *
 * Nothing returns that anyone may still reach: who gives a page back has frozen its
 * count at one reference, his own, after nobody could find it any more.
 *
 * A write of the target fills the pool, and reclaims and compacts for it, as one to
 * nr_hugepages does: the target becomes what could be had. All that remains to be
 * done in the background is the worker's: it zeroes pages that are dirty, and brings
 * another, of what is free, for one that the hardware has failed.
 *
 * The worker runs at the lowest priority on the CPUs of its node, or of the nearest
 * that has any, without those that are isolated. Before it begins, and after each
 * batch of pages, it rests for ten milliseconds if anybody else wants its CPU.
 *
 * Pages of a pool are not charged to memory cgroups, neither in it nor in a region.
 */
#include <linux/cpumask.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/isolation.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/topology.h>
#include <linux/wait.h>

#include "actmem.h"

/* As hugetlb takes its pages; but no task is killed for them, and none is movable. */
#define RESERVE_GFP	(GFP_KERNEL | __GFP_COMP | __GFP_THISNODE | __GFP_RETRY_MAYFAIL | \
			 __GFP_NOWARN)
/* Takes free pages alone, and reclaims nothing. */
#define REPLACE_GFP	((GFP_KERNEL & ~__GFP_RECLAIM) | __GFP_COMP | __GFP_THISNODE | \
			 __GFP_NOMEMALLOC | __GFP_NOWARN)

#define TRIM_BATCH	64
#define WORK_BATCH	8
#define REST		msecs_to_jiffies(10)
#define RETRY		(30 * HZ)

/**
 * struct actmem_pool - the pages of one node
 * @lock: see there; held for an instant only
 * @ready: pages that are zero
 * @dirty: pages still to be zeroed
 * @ready_count: length of @ready
 * @held: pages in @ready and @dirty, one that the worker has in hand, and those that
 *	are on their way to @dirty
 * @lent: pages that regions have taken and are to give back
 * @target: pages to hold and to have lent, in all
 * @settings: held by who changes the target, as long as it takes
 * @kicked: there is something to do
 * @wait: where the worker waits to be kicked
 * @worker: NULL as long as there has been no target; protected by @settings
 * @node: whose pages these are
 */
struct actmem_pool {
	/* Protects what follows, up to @target. */
	spinlock_t lock;
	struct list_head ready;
	struct list_head dirty;
	unsigned long ready_count;
	unsigned long held;
	unsigned long lent;
	unsigned long target;
	/* Outside of @lock. */
	struct mutex settings;
	bool kicked;
	wait_queue_head_t wait;
	struct task_struct *worker;
	int node;
};

/* By node. */
static struct actmem_pool *pools;

static unsigned long pool_size(const struct actmem_pool *pool)
{
	lockdep_assert_held(&pool->lock);
	return pool->held + pool->lent;
}

static void pool_kick(struct actmem_pool *pool)
{
	WRITE_ONCE(pool->kicked, true);
	wake_up(&pool->wait);
}

static struct folio *pool_pop(struct list_head *list)
{
	struct folio *folio = list_first_entry_or_null(list, struct folio, lru);

	if (folio)
		list_del(&folio->lru);
	return folio;
}

static struct folio *pool_pop_ready(struct actmem_pool *pool)
{
	struct folio *folio = pool_pop(&pool->ready);

	if (folio)
		pool->ready_count--;
	return folio;
}

/* To the page allocator, which might hand it out again if the hardware has erred in it. */
static void pool_release(struct folio *folio)
{
	if (actmem_page_has_failed(folio))
		actmem_quarantine(folio);
	else
		folio_put(folio);
}

/*
 * Gives pages to the page allocator until the pool is no larger than @size, or
 * nothing is left but what is lent.
 */
static void pool_trim(struct actmem_pool *pool, unsigned long size)
{
	unsigned int count;

	do {
		struct folio *folio;
		LIST_HEAD(surplus);

		spin_lock(&pool->lock);
		for (count = 0; count < TRIM_BATCH && pool_size(pool) > size; count++) {
			folio = pool_pop(&pool->dirty) ?: pool_pop_ready(pool);
			if (!folio)
				break;
			pool->held--;
			list_add(&folio->lru, &surplus);
		}
		spin_unlock(&pool->lock);
		while ((folio = pool_pop(&surplus)))
			pool_release(folio);
		cond_resched();
	} while (count == TRIM_BATCH);
}

/* Zeroes the page unless it is; false if the hardware has failed it, and it is out of use. */
static bool pool_prepare(struct folio *folio, bool is_ready)
{
	long i;

	if (actmem_page_has_failed(folio)) {
		actmem_quarantine(folio);
		return false;
	}
	for (i = 0; !is_ready && i < folio_nr_pages(folio); i++)
		clear_highpage(folio_page(folio, i));
	return true;
}

static struct folio *pool_lend(struct actmem_pool *pool, struct folio *folio)
{
	lockdep_assert_held(&pool->lock);
	if (folio) {
		actmem_page_note(folio, ACTMEM_PAGE_LENT);
		pool->held--;
		pool->lent++;
	}
	return folio;
}

/* A page that was lent has been set apart; the pool is to get another one. */
static void pool_write_off(struct actmem_pool *pool)
{
	spin_lock(&pool->lock);
	pool->lent--;
	spin_unlock(&pool->lock);
	pool_kick(pool);
}

/* A page of zeros that nobody pays for, zeroed here if none is ready; NULL if there is none. */
struct folio *actmem_pool_take(int node)
{
	struct actmem_pool *pool = &pools[node];
	struct folio *folio;
	bool is_ready;

	while (READ_ONCE(pool->held)) {
		spin_lock(&pool->lock);
		folio = pool_pop_ready(pool);
		is_ready = folio;
		folio = pool_lend(pool, folio ?: pool_pop(&pool->dirty));
		spin_unlock(&pool->lock);
		if (!folio)
			break;
		if (pool_prepare(folio, is_ready))
			return folio;
		pool_write_off(pool);
	}
	return NULL;
}

/* Of a page that was lent; false if the pool does not want it any more. */
static bool pool_take_back(struct actmem_pool *pool, struct folio *folio, bool is_usable)
{
	spin_lock(&pool->lock);
	if (pool_size(pool) > pool->target)
		is_usable = false;
	if (is_usable) {
		list_add(&folio->lru, &pool->dirty);
		pool->held++;
	}
	pool->lent--;
	spin_unlock(&pool->lock);
	/* To have it zeroed, or to get another when that is possible. */
	pool_kick(pool);
	return is_usable;
}

/*
 * Takes over a page that nobody else can reach, to where it came from: the pool
 * of its node or the page allocator.
 */
void actmem_pool_give(struct folio *folio)
{
	struct actmem_pool *pool = &pools[folio_nid(folio)];
	bool was_lent = actmem_page_notes(folio) & ACTMEM_PAGE_LENT;
	bool poisoned = actmem_page_notes(folio) & ACTMEM_PAGE_POISONED ||
			actmem_page_has_failed(folio);

	if (!poisoned)
		actmem_page_note(folio, 0);
	if (was_lent) {
		folio_clear_referenced(folio);
		folio_clear_dirty(folio);
		/* The page allocator knows what to do with a page that is still locked. */
		if (pool_take_back(pool, folio, !poisoned && !folio_test_mlocked(folio)))
			return;
	}
	if (poisoned)
		actmem_quarantine(folio);
	else
		folio_put(folio);
}

/*
 * Gives the pool one page more, still to be zeroed, if it wants one: 1; else 0;
 * -ENOMEM if there is none.
 */
static int pool_grow(struct actmem_pool *pool, gfp_t gfp)
{
	bool is_wanted, is_kept;
	struct page *page;

	spin_lock(&pool->lock);
	is_wanted = pool_size(pool) < pool->target;
	pool->held += is_wanted;
	spin_unlock(&pool->lock);
	if (!is_wanted)
		return 0;
	page = alloc_pages_node(pool->node, gfp, ACTMEM_PAGE_ORDER);

	spin_lock(&pool->lock);
	is_kept = page && pool_size(pool) <= pool->target;
	if (is_kept)
		list_add(&page_folio(page)->lru, &pool->dirty);
	else
		pool->held--;
	spin_unlock(&pool->lock);
	if (!page)
		return -ENOMEM;
	if (!is_kept)
		pool_release(page_folio(page));
	return is_kept;
}

/* The worker's. */

/* Makes one page ready; returns how long to wait before the next. */
static long pool_work(struct actmem_pool *pool)
{
	struct folio *folio;
	bool is_kept;
	int err;

	spin_lock(&pool->lock);
	folio = pool_pop(&pool->dirty);
	spin_unlock(&pool->lock);
	if (!folio) {
		err = pool_grow(pool, REPLACE_GFP);
		return err < 0 ? RETRY : err ? 0 : MAX_SCHEDULE_TIMEOUT;
	}
	if (!pool_prepare(folio, false))
		folio = NULL;

	spin_lock(&pool->lock);
	is_kept = folio && pool_size(pool) <= pool->target;
	if (is_kept) {
		list_add(&folio->lru, &pool->ready);
		pool->ready_count++;
	} else {
		pool->held--;
	}
	spin_unlock(&pool->lock);
	if (folio && !is_kept)
		pool_release(folio);
	return 0;
}

/* If all CPUs near the node are isolated, it runs on any that is not. */
static void pool_choose_cpus(int node)
{
	int cpu_node = actmem_nearest_node(&node_states[N_CPU], node);
	cpumask_var_t cpus;

	if (cpu_node == NUMA_NO_NODE || !alloc_cpumask_var(&cpus, GFP_KERNEL))
		return;
	rcu_read_lock();
	cpumask_and(cpus, housekeeping_cpumask(HK_TYPE_DOMAIN), housekeeping_cpumask(HK_TYPE_TICK));
	rcu_read_unlock();
	if (cpumask_intersects(cpus, cpumask_of_node(cpu_node)))
		cpumask_and(cpus, cpus, cpumask_of_node(cpu_node));
	/* Fails if none of them is online; then it stays where the kernel has put it. */
	set_cpus_allowed_ptr(current, cpus);
	free_cpumask_var(cpus);
}

static int pool_worker(void *data)
{
	struct actmem_pool *pool = data;
	unsigned int count = 0;

	pool_choose_cpus(pool->node);
	set_user_nice(current, MAX_NICE);
	while (!kthread_should_stop()) {
		long wait;

		/* Before the first page, too: who kicks is in need of the CPU. */
		if (count++ % WORK_BATCH == 0 && !single_task_running())
			schedule_timeout_idle(REST);
		WRITE_ONCE(pool->kicked, false);
		wait = pool_work(pool);
		cond_resched();
		if (wait) {
			wait_event_idle_timeout(pool->wait, READ_ONCE(pool->kicked) ||
						kthread_should_stop(), wait);
			count = 0;
		}
	}
	return 0;
}

/* If it has not been started yet. */
static int pool_start_worker(struct actmem_pool *pool)
{
	int cpu_node = actmem_nearest_node(&node_states[N_CPU], pool->node);
	struct task_struct *worker;

	lockdep_assert_held(&pool->settings);
	if (pool->worker)
		return 0;
	worker = kthread_create_on_node(pool_worker, pool, cpu_node, "actmem_pool/%d", pool->node);
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	pool->worker = worker;
	wake_up_process(worker);
	return 0;
}

/* The administrator's. */

/* As far as there is memory, and no signal. */
static int pool_fill(struct actmem_pool *pool, unsigned long target)
{
	unsigned long size;
	int err;

	while ((err = pool_grow(pool, RESERVE_GFP)) > 0) {
		pool_kick(pool);
		cond_resched();
		if (signal_pending(current)) {
			err = -EINTR;
			break;
		}
	}
	if (!err)
		return 0;
	spin_lock(&pool->lock);
	size = pool_size(pool);
	pool->target = min(target, size);
	spin_unlock(&pool->lock);
	if (err == -ENOMEM)
		pr_warn("actmem: the pool of node %d has %llu bytes of %llu wanted: no more can be had there; free memory, and write pool_bytes again\n",
			pool->node, size * ACTMEM_PAGE_BYTES, target * ACTMEM_PAGE_BYTES);
	return err == -ENOMEM ? 0 : err;
}

/*
 * How many pages belong to the pool from now on, or as many of them as can be had.
 * ERANGE if the node has less memory, EINTR with what there was when the signal came.
 */
int actmem_pool_set_target(int node, unsigned long target)
{
	struct actmem_pool *pool = &pools[node];
	int err;

	if (target > actmem_node_capacity(node))
		return -ERANGE;
	err = mutex_lock_interruptible(&pool->settings);
	if (err)
		return err;
	err = target ? pool_start_worker(pool) : 0;
	if (!err) {
		spin_lock(&pool->lock);
		pool->target = target;
		spin_unlock(&pool->lock);
		pool_trim(pool, target);
		err = pool_fill(pool, target);
		pool_kick(pool);
	}
	mutex_unlock(&pool->settings);
	return err;
}

unsigned long actmem_pool_target(int node)
{
	return READ_ONCE(pools[node].target);
}

unsigned long actmem_pool_ready(int node)
{
	return READ_ONCE(pools[node].ready_count);
}

unsigned long actmem_pool_lent(int node)
{
	return READ_ONCE(pools[node].lent);
}

/* Ready or not. */
unsigned long actmem_pool_held(int node)
{
	return READ_ONCE(pools[node].held);
}

int actmem_pool_init(void)
{
	int node;

	pools = kcalloc(nr_node_ids, sizeof(*pools), GFP_KERNEL);
	if (!pools)
		return -ENOMEM;
	for (node = 0; node < nr_node_ids; node++) {
		struct actmem_pool *pool = &pools[node];

		spin_lock_init(&pool->lock);
		mutex_init(&pool->settings);
		INIT_LIST_HEAD(&pool->ready);
		INIT_LIST_HEAD(&pool->dirty);
		init_waitqueue_head(&pool->wait);
		pool->node = node;
	}
	return 0;
}

/* No region is left that could give pages back. */
void actmem_pool_exit(void)
{
	int node;

	for (node = 0; node < nr_node_ids; node++) {
		struct actmem_pool *pool = &pools[node];

		if (pool->worker)
			kthread_stop(pool->worker);
		pool_trim(pool, 0);
		WARN_ON_ONCE(pool->held || pool->lent);
	}
	kfree(pools);
}
