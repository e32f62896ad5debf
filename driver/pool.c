// SPDX-License-Identifier: GPL-2.0
/*
 * Pools: for each node, huge pages that are zero already, so that making a region
 * zeroes nothing.
 *
 * A pool is the administrator's reservation, as hugetlb's is: no more pages than its
 * target belong to it, held or lent, and nothing but another target takes them away.
 * One that it holds is ready, or dirty, or being zeroed by the worker, and the pool
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
 * The worker is a work item of each pool, on an unbound workqueue: the kernel runs it
 * near the node, on CPUs that are not isolated, and the administrator may choose
 * others, and a nice level, in sysfs. Before each batch of pages it rests for ten
 * milliseconds if anybody else wants its CPU.
 *
 * Pages of a pool are not charged to memory cgroups, neither in it nor in a region; in
 * a region they are to dmem cgroups (dmem.c).
 */
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "actmem.h"

/* As hugetlb takes its pages; but no task is killed for them, and none is movable. */
#define RESERVE_GFP	(GFP_KERNEL | __GFP_COMP | __GFP_THISNODE | __GFP_RETRY_MAYFAIL | \
			 __GFP_NOWARN)
/* Takes free pages alone, and reclaims nothing. */
#define REPLACE_GFP	((GFP_KERNEL & ~__GFP_RECLAIM) | __GFP_COMP | __GFP_THISNODE | \
			 __GFP_NOMEMALLOC | __GFP_NOWARN)

#define WORK_BATCH	8
#define REST		msecs_to_jiffies(10)
#define RETRY		(30 * HZ)

struct pool_list {
	struct list_head pages;
	unsigned long count;
};

/**
 * struct actmem_pool - the pages of one node
 * @lock: see there; held for an instant only
 * @ready: pages that are zero
 * @dirty: pages still to be zeroed; the worker is at it as long as there are any
 * @zeroing: the worker has a page in hand
 * @lent: pages that regions have taken and are to give back
 * @target: pages to hold and to have lent, in all
 * @settings: held by who changes the target, as long as it takes
 * @work: the worker; delayed as long as it waits for memory
 * @node: whose pages these are
 */
struct actmem_pool {
	/* Protects what follows, up to @target. */
	spinlock_t lock;
	struct pool_list ready;
	struct pool_list dirty;
	bool zeroing;
	unsigned long lent;
	unsigned long target;
	/* Outside of @lock. */
	struct mutex settings;
	struct delayed_work work;
	int node;
};

/* By node. */
static struct actmem_pool *pools;
static struct workqueue_struct *workers;

static unsigned long pool_size(const struct actmem_pool *pool)
{
	lockdep_assert_held(&pool->lock);
	return pool->ready.count + pool->dirty.count + pool->zeroing + pool->lent;
}

static struct folio *pool_pop(struct pool_list *list)
{
	struct folio *folio = list_first_entry_or_null(&list->pages, struct folio, lru);

	if (folio) {
		list_del(&folio->lru);
		list->count--;
	}
	return folio;
}

/* False if the pool is large enough without the page. */
static bool pool_add(struct actmem_pool *pool, struct pool_list *list, struct folio *folio)
{
	if (pool_size(pool) >= pool->target)
		return false;
	list_add(&folio->lru, &list->pages);
	list->count++;
	return true;
}

static void pool_kick(struct actmem_pool *pool)
{
	/* It may be waiting for memory. */
	cancel_delayed_work(&pool->work);
	queue_work_node(pool->node, workers, &pool->work.work);
}

/*
 * Takes over a page that is to be zeroed; false if the pool does not want it. One that
 * @was_lent has come back, or has been lost, if @folio is NULL.
 */
static bool pool_put(struct actmem_pool *pool, struct folio *folio, bool was_lent)
{
	bool is_kept, has_work;

	spin_lock(&pool->lock);
	pool->lent -= was_lent;
	is_kept = folio && pool_add(pool, &pool->dirty, folio);
	has_work = !folio || (is_kept && pool->dirty.count == 1);
	spin_unlock(&pool->lock);
	if (has_work)
		pool_kick(pool);
	return is_kept;
}

/* False if the hardware has failed it: that is looked at where its struct is at hand. */
static bool page_zero(struct folio *folio)
{
	long i;

	for (i = 0; i < folio_nr_pages(folio); i++) {
		if (PageHWPoison(folio_page(folio, i)))
			return false;
		clear_highpage(folio_page(folio, i));
	}
	return true;
}

/* The page allocator might hand a page out again in which the hardware has erred. */
static void page_release(struct folio *folio)
{
	if (actmem_page_notes(folio) & ACTMEM_PAGE_POISONED || actmem_page_has_failed(folio))
		actmem_quarantine(folio);
	else
		folio_put(folio);
}

/* A page of zeros that nobody pays for, zeroed here if none is ready; NULL if there is none. */
struct folio *actmem_pool_take(int node)
{
	struct actmem_pool *pool = &pools[node];
	struct folio *folio;
	bool is_ready;

	while (actmem_pool_held(node)) {
		spin_lock(&pool->lock);
		folio = pool_pop(&pool->ready);
		is_ready = folio;
		folio = folio ?: pool_pop(&pool->dirty);
		pool->lent += !!folio;
		spin_unlock(&pool->lock);
		if (!folio)
			break;
		actmem_page_note(folio, ACTMEM_PAGE_LENT);
		if (is_ready ? !actmem_poison_is_suspected() || !actmem_page_has_failed(folio) :
			       page_zero(folio))
			return folio;
		actmem_quarantine(folio);
		pool_put(pool, NULL, true);
	}
	return NULL;
}

/*
 * Takes over a page that nobody else can reach, to where it came from: the pool
 * of its node or the page allocator.
 */
void actmem_pool_give(struct folio *folio)
{
	struct actmem_pool *pool = &pools[folio_nid(folio)];
	unsigned long notes = actmem_page_notes(folio);
	bool is_usable;

	actmem_page_note(folio, notes & ACTMEM_PAGE_POISONED);
	if (notes & ACTMEM_PAGE_LENT) {
		folio_clear_referenced(folio);
		folio_clear_dirty(folio);
		/* The page allocator knows what to do with a page that is still locked. */
		is_usable = !(notes & ACTMEM_PAGE_POISONED) && !folio_test_mlocked(folio);
		if (pool_put(pool, is_usable ? folio : NULL, true))
			return;
	}
	page_release(folio);
}

/*
 * Gives the pool one page more, still to be zeroed, if it wants one: 1; else 0;
 * -ENOMEM if there is none.
 */
static int pool_grow(struct actmem_pool *pool, gfp_t gfp)
{
	struct page *page;
	bool is_wanted;

	spin_lock(&pool->lock);
	is_wanted = pool_size(pool) < pool->target;
	spin_unlock(&pool->lock);
	if (!is_wanted)
		return 0;
	page = alloc_pages_node(pool->node, gfp, ACTMEM_PAGE_ORDER);
	if (!page)
		return -ENOMEM;
	if (pool_put(pool, page_folio(page), false))
		return 1;
	page_release(page_folio(page));
	return 0;
}

/* The worker's. */

/* Zeroes one page, or gets one that is missing: 1; 0 if there is none, or -ENOMEM. */
static int pool_work_on_page(struct actmem_pool *pool)
{
	struct folio *folio;
	bool is_zero, is_kept;

	spin_lock(&pool->lock);
	folio = pool_pop(&pool->dirty);
	pool->zeroing = folio;
	spin_unlock(&pool->lock);
	if (!folio)
		return pool_grow(pool, REPLACE_GFP);

	is_zero = page_zero(folio);
	spin_lock(&pool->lock);
	pool->zeroing = false;
	is_kept = is_zero && pool_add(pool, &pool->ready, folio);
	spin_unlock(&pool->lock);
	if (!is_zero)
		actmem_quarantine(folio);
	else if (!is_kept)
		page_release(folio);
	return 1;
}

static void pool_work(struct work_struct *work)
{
	struct actmem_pool *pool = container_of(to_delayed_work(work), struct actmem_pool, work);
	unsigned int count = 0;
	int err;

	/* Before the first page, too: who kicks is in need of the CPU. */
	if (!single_task_running())
		schedule_timeout_idle(REST);
	do {
		err = pool_work_on_page(pool);
		cond_resched();
	} while (err > 0 && ++count < WORK_BATCH);
	if (err > 0)
		pool_kick(pool);
	else if (err)
		queue_delayed_work(workers, &pool->work, RETRY);
	/* A page that has come before this was queued found no timer to cancel. */
	if (err < 0 && READ_ONCE(pool->dirty.count))
		pool_kick(pool);
}

/* The administrator's. */

/* Gives to the page allocator what the pool holds beyond the target. */
static void pool_aim(struct actmem_pool *pool, unsigned long target)
{
	struct folio *folio;

	spin_lock(&pool->lock);
	pool->target = target;
	while (pool_size(pool) > target) {
		folio = pool_pop(&pool->dirty) ?: pool_pop(&pool->ready);
		if (!folio)
			break;
		spin_unlock(&pool->lock);
		page_release(folio);
		cond_resched();
		spin_lock(&pool->lock);
	}
	spin_unlock(&pool->lock);
}

/* As far as there is memory, and no signal. */
static int pool_fill(struct actmem_pool *pool)
{
	unsigned long size, target = pool->target;
	unsigned int waits = 0;
	int err;

	do {
		err = pool_grow(pool, RESERVE_GFP);
		if (err > 0)
			waits = 0;
		cond_resched();
	} while ((err > 0 || (err && actmem_wait_for_page(&waits))) && !signal_pending(current));
	if (!err)
		return 0;
	spin_lock(&pool->lock);
	size = pool_size(pool);
	pool->target = min(target, size);
	spin_unlock(&pool->lock);
	if (err > 0 || signal_pending(current))
		return -EINTR;
	pr_warn("actmem: the pool of node %d has %llu bytes of %llu wanted: no more can be had there; free memory, and write pool_bytes again\n",
		pool->node, size * ACTMEM_PAGE_BYTES, target * ACTMEM_PAGE_BYTES);
	return 0;
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
	pool_aim(pool, target);
	err = pool_fill(pool);
	mutex_unlock(&pool->settings);
	return err;
}

unsigned long actmem_pool_target(int node)
{
	return READ_ONCE(pools[node].target);
}

unsigned long actmem_pool_ready(int node)
{
	return READ_ONCE(pools[node].ready.count);
}

unsigned long actmem_pool_lent(int node)
{
	return READ_ONCE(pools[node].lent);
}

/* Ready or not. */
unsigned long actmem_pool_held(int node)
{
	return READ_ONCE(pools[node].ready.count) + READ_ONCE(pools[node].dirty.count);
}

int actmem_pool_init(void)
{
	int node;

	pools = kcalloc(nr_node_ids, sizeof(*pools), GFP_KERNEL);
	if (!pools)
		return -ENOMEM;
	workers = alloc_workqueue("actmem", WQ_UNBOUND | WQ_SYSFS, 0);
	if (!workers) {
		kfree(pools);
		return -ENOMEM;
	}
	for (node = 0; node < nr_node_ids; node++) {
		struct actmem_pool *pool = &pools[node];

		spin_lock_init(&pool->lock);
		mutex_init(&pool->settings);
		INIT_LIST_HEAD(&pool->ready.pages);
		INIT_LIST_HEAD(&pool->dirty.pages);
		INIT_DELAYED_WORK(&pool->work, pool_work);
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

		pool_aim(pool, 0);
		cancel_delayed_work_sync(&pool->work);
		WARN_ON_ONCE(actmem_pool_held(node) || pool->lent);
	}
	destroy_workqueue(workers);
	kfree(pools);
}
