// SPDX-License-Identifier: GPL-2.0
/*
 * Each node has a pool of pages. The driver zeroes these pages in advance, so that regions get
 * zeroed pages faster.
 *
 * A pool is a reservation that the administrator makes, as in hugetlb. A pool lends its pages to
 * regions. The pages in the pool and the lent pages are together at most the pool's target. A pool
 * shrinks only when its target is lowered. Each page in the pool is ready (zeroed), dirty, or being
 * zeroed by the worker. Only the driver has references to these pages. A lent page has the bit LENT
 * in its notes (actmem.h). When the region gives up the page, the page returns to the pool, unless
 * the pool has reached its target. Pages without LENT go back to the page allocator.
 *
 * A region gives up a page only when no other code can reach the page. The caller of
 * actmem_pool_give() first makes sure that no other code can find the page, and then that no other
 * code has a reference. The driver's own references go to the pool.
 *
 * When the administrator writes the target, the driver fills the pool, and reclaims and compacts
 * memory if needed, as hugetlb does for nr_hugepages. If memory is short, the target becomes the
 * number of pages that the pool got. The worker runs in the background: it zeroes dirty pages, and
 * replaces pages that have hardware errors by free pages.
 *
 * Each pool has one worker, a work item on an unbound workqueue. The kernel runs the worker near
 * the node, on CPUs that are not isolated. The administrator can choose other CPUs, and a nice
 * level, in sysfs. Before each batch of pages, the worker sleeps for ten milliseconds if other
 * tasks want the worker's CPU.
 *
 * Pages of a pool are never charged to memory cgroups. While a region has a page, the page is
 * charged to a dmem cgroup (dmem.c).
 */
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "actmem.h"

/* Like hugetlb's flags, but the OOM killer is not called, and the pages are never movable. */
#define RESERVE_GFP	(GFP_KERNEL | __GFP_THISNODE | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)
/* Take only free pages, and reclaim nothing. */
#define REPLACE_GFP	((GFP_KERNEL & ~__GFP_RECLAIM) | __GFP_THISNODE | __GFP_NOMEMALLOC | \
			 __GFP_NOWARN)

#define WORK_BATCH	8
#define REST		msecs_to_jiffies(10)
#define RETRY		(30 * HZ)

struct pool_list {
	struct list_head pages;
	unsigned long count;
};

/**
 * struct actmem_pool - the pool of one node
 * @lock: protects the fields up to @target
 * @ready: zeroed pages
 * @dirty: pages to be zeroed; the worker runs while there are dirty pages
 * @zeroing: true while the worker zeroes a page
 * @lent: pages that regions have taken and will give back
 * @target: maximum size of the pool, in pages; the size includes the lent pages
 * @settings: serializes changes of the target
 * @work: the worker's work; delayed while the worker waits for memory
 * @node: the node of these pages
 */
struct actmem_pool {
	/* Protects the fields below, up to @target. */
	spinlock_t lock;
	struct pool_list ready;
	struct pool_list dirty;
	bool zeroing;
	unsigned long lent;
	unsigned long target;
	/* Not protected by @lock. */
	struct mutex settings;
	struct delayed_work work;
	int node;
};

/* Indexed by node. */
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

/* Adds a page to a list. Returns false if the pool has reached its target. */
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
	/* End the delay, if the worker waits for memory. */
	cancel_delayed_work(&pool->work);
	queue_work_node(pool->node, workers, &pool->work.work);
}

/*
 * Adds a page to the dirty pages. Returns false if the pool does not need the page; the caller then
 * keeps the page. @was_lent: the page was lent, and is not lent any more. If a lent page can no
 * longer be used, @folio is NULL, and the worker replaces the page if the pool is below its target.
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

/* Zeroes the page. Returns false if the hardware reported an error in the page. */
static bool pool_page_zero(struct folio *folio)
{
	long i;

	for (i = 0; i < folio_nr_pages(folio); i++) {
		if (PageHWPoison(folio_page(folio, i)))
			return false;
		clear_highpage(folio_page(folio, i));
	}
	return true;
}

/* Frees a page, or keeps the page out of use if the hardware reported an error in it. */
static void pool_page_release(struct folio *folio)
{
	if (actmem_page_notes(folio) & ACTMEM_PAGE_POISONED || actmem_quarantine_is_needed(folio))
		actmem_quarantine_page(folio);
	else
		actmem_node_free(folio);
}

/*
 * Takes a zeroed page, which is not charged to a memory cgroup. If no page is ready, zeroes a dirty
 * page here. Returns NULL if the pool is empty.
 */
struct folio *actmem_pool_take(int node)
{
	struct actmem_pool *pool = &pools[node];
	bool is_ready, is_good;
	struct folio *folio;

	while (actmem_pool_held(node)) {
		spin_lock(&pool->lock);
		folio = pool_pop(&pool->ready);
		is_ready = folio;
		folio = folio ?: pool_pop(&pool->dirty);
		pool->lent += !!folio;
		spin_unlock(&pool->lock);
		if (!folio)
			break;
		actmem_page_notes_set(folio, ACTMEM_PAGE_LENT);
		if (!is_ready)
			is_good = pool_page_zero(folio);
		else
			is_good = !READ_ONCE(actmem_quarantine_expected) ||
				  !actmem_quarantine_is_needed(folio);
		if (is_good)
			return folio;
		actmem_quarantine_page(folio);
		pool_put(pool, NULL, true);
	}
	return NULL;
}

/*
 * Takes over a page that no other code can reach, and returns it to its origin: the pool of its
 * node, or the page allocator.
 */
void actmem_pool_give(struct folio *folio)
{
	struct actmem_pool *pool = &pools[folio_nid(folio)];
	unsigned long notes = actmem_page_notes(folio);
	bool is_usable;

	actmem_page_notes_set(folio, notes & ACTMEM_PAGE_POISONED);
	if (notes & ACTMEM_PAGE_LENT) {
		folio_clear_referenced(folio);
		folio_clear_dirty(folio);
		/* Free an mlocked page: only the page allocator can clear this state. */
		is_usable = !(notes & ACTMEM_PAGE_POISONED) && !folio_test_mlocked(folio);
		if (pool_put(pool, is_usable ? folio : NULL, true))
			return;
	}
	pool_page_release(folio);
}

/*
 * Allocates a page, and adds it to the dirty pages. Returns 1 if a page was added, 0 if the pool
 * has reached its target, or -ENOMEM.
 */
static int pool_grow(struct actmem_pool *pool, gfp_t gfp)
{
	struct folio *folio;
	bool is_wanted;

	spin_lock(&pool->lock);
	is_wanted = pool_size(pool) < pool->target;
	spin_unlock(&pool->lock);
	if (!is_wanted)
		return 0;
	folio = actmem_node_alloc(pool->node, gfp);
	if (!folio)
		return -ENOMEM;
	if (pool_put(pool, folio, false))
		return 1;
	pool_page_release(folio);
	return 0;
}

/* Functions of the worker. */

/*
 * Zeroes a dirty page. If there is none, and the pool is below its target, allocates a page.
 * Returns 1 on success, 0 if there was nothing to do, or -ENOMEM.
 */
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

	is_zero = pool_page_zero(folio);
	spin_lock(&pool->lock);
	pool->zeroing = false;
	is_kept = is_zero && pool_add(pool, &pool->ready, folio);
	spin_unlock(&pool->lock);
	if (!is_zero)
		actmem_quarantine_page(folio);
	else if (!is_kept)
		pool_page_release(folio);
	return 1;
}

static void pool_work(struct work_struct *work)
{
	struct actmem_pool *pool = container_of(to_delayed_work(work), struct actmem_pool, work);
	unsigned int count = 0;
	int err;

	/* Sleep even before the first page: the task that called pool_kick() needs the CPU. */
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
	/*
	 * If another task called pool_kick() just before the timer started, that call found no
	 * timer to cancel, and the timer now delays the work. So kick again.
	 */
	if (err < 0 && READ_ONCE(pool->dirty.count))
		pool_kick(pool);
}

/* Functions for the administrator's settings. */

/* Sets the target. Frees pages in the pool while the pool exceeds the target. */
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
		pool_page_release(folio);
		cond_resched();
		spin_lock(&pool->lock);
	}
	spin_unlock(&pool->lock);
}

/* Fills the pool up to its target. Stops early if memory is short or a signal arrives. */
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
	} while ((err > 0 || (err && actmem_node_wait(&waits))) && !signal_pending(current));
	if (!err)
		return 0;
	spin_lock(&pool->lock);
	size = pool_size(pool);
	pool->target = min(target, size);
	spin_unlock(&pool->lock);
	if (err > 0 || signal_pending(current))
		return -EINTR;
	pr_warn("actmem: the pool of node %d has %llu bytes of %llu wanted: the node has no more free pages of 2 MiB; free memory, and write pool_bytes again\n",
		pool->node, size * ACTMEM_PAGE_BYTES, target * ACTMEM_PAGE_BYTES);
	return 0;
}

/*
 * Sets the target of a pool, and fills the pool. If memory is short or a signal arrives, the target
 * becomes the number of pages that the pool got. Returns EINTR after a signal, and ERANGE if the
 * node has less memory than @target.
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

/* Returns the number of ready and dirty pages. */
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

/* Frees the pools. No region is left that could give pages back. */
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
