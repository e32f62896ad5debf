// SPDX-License-Identifier: GPL-2.0
/*
 * Warm pools: for each node, huge pages that are zero already, so that making
 * a region zeroes nothing.
 *
 * A page in a pool is dirty, or in the hands of the worker, or ready; the pool
 * has the only reference to it. None is charged to a memory cgroup: what comes
 * back charged goes to the page allocator.
 *
 * Filling starts when a pool holds less than its low mark, 7/8 of its target,
 * and goes on to the target. It takes what is free while the node stays above
 * its high watermarks, and never reclaims: a fill that finds nothing is tried
 * again after a second, then two, and so on up to a minute.
 *
 * Under memory pressure a pool gives pages back down to its floor, and is not
 * filled for the ten seconds that follow; neither does it take pages back
 * beyond the floor then.
 *
 * The worker of a node runs on the CPUs of that node, or of the nearest that
 * has any, at the lowest priority. After each batch of pages it rests for ten
 * milliseconds if anybody else wants its CPU.
 */
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/memory.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/topology.h>
#include <linux/wait.h>

#include "actmem.h"
#include "compat/compat.h"

/* What is free, and nothing that would have to be reclaimed for it. */
#define FILL_GFP	((GFP_USER & ~__GFP_RECLAIM) | __GFP_COMP | __GFP_THISNODE | \
			 __GFP_NOMEMALLOC | __GFP_NOWARN)

#define FILL_BATCH		8
#define TRIM_BATCH		64
#define REST			msecs_to_jiffies(10)
#define RETRY_MIN		HZ
#define RETRY_MAX		(64 * HZ)
#define PRESSURE_PAUSE		(10 * HZ)

/**
 * struct pool - the warm pages of one node
 * @lock: see there; held for an instant only
 * @ready: pages that are zero
 * @dirty: pages still to be zeroed
 * @ready_count: length of @ready
 * @held: pages in @ready and @dirty, and one that the worker has in hand
 * @target: pages to hold
 * @floor: pages that memory pressure leaves, if @target is not less
 * @paused_until: jiffies, memory pressure was felt not long before
 * @filling: the low mark has been passed, and the target not yet reached
 * @kicked: there is something to do, or to think over
 * @wait: where the worker waits to be kicked
 * @retry: jiffies to wait after the next fill that finds nothing; the worker's
 * @worker: NULL as long as there has been no target; protected by settings_lock
 * @node: whose pages these are
 */
struct pool {
	/* Protects what follows, up to @wait. */
	spinlock_t lock;
	struct list_head ready;
	struct list_head dirty;
	unsigned long ready_count;
	unsigned long held;
	unsigned long target;
	unsigned long floor;
	unsigned long paused_until;
	bool filling;
	bool kicked;
	wait_queue_head_t wait;
	long retry;
	struct task_struct *worker;
	int node;
};

static struct pool *pools;

/* One who changes settings at a time. */
static DEFINE_MUTEX(settings_lock);

static unsigned long floor_of(const struct pool *pool)
{
	return min(pool->floor, pool->target);
}

static bool is_paused(const struct pool *pool)
{
	return time_before(jiffies, pool->paused_until);
}

static bool is_below_low_mark(const struct pool *pool)
{
	return pool->held < pool->target - pool->target / 8;
}

static void kick(struct pool *pool)
{
	WRITE_ONCE(pool->kicked, true);
	wake_up(&pool->wait);
}

static struct folio *pop(struct list_head *list)
{
	struct folio *folio = list_first_entry_or_null(list, struct folio, lru);

	if (folio)
		list_del(&folio->lru);
	return folio;
}

static struct folio *pop_ready(struct pool *pool)
{
	struct folio *folio = pop(&pool->ready);

	if (folio)
		pool->ready_count--;
	return folio;
}

/* Gives pages to the page allocator until no more than @keep are held. */
static unsigned long trim(struct pool *pool, unsigned long keep)
{
	unsigned long freed = 0;
	unsigned int count;

	do {
		struct folio *folio;
		LIST_HEAD(surplus);

		spin_lock(&pool->lock);
		for (count = 0; count < TRIM_BATCH && pool->held > keep; count++) {
			folio = pop(&pool->dirty) ?: pop_ready(pool);
			if (!folio)
				break;
			pool->held--;
			list_add(&folio->lru, &surplus);
		}
		spin_unlock(&pool->lock);
		while ((folio = pop(&surplus)))
			folio_put(folio);
		freed += count;
		cond_resched();
	} while (count == TRIM_BATCH);
	return freed;
}

/* False if the hardware has reported an error in it. */
static bool zero(struct folio *folio)
{
	long i;

	for (i = 0; i < folio_nr_pages(folio); i++) {
		if (PageHWPoison(folio_page(folio, i)))
			return false;
		clear_highpage(folio_page(folio, i));
	}
	return true;
}

/* Its reference stays, so that nobody is ever given it. */
static void set_apart(struct folio *folio)
{
	pr_err("actmem: huge page at pfn %#lx has a hardware error and is out of use\n",
	       folio_pfn(folio));
}

/* A page of zeros that nobody pays for; NULL if the pool has none. */
struct folio *actmem_pool_take(int node)
{
	struct pool *pool = &pools[node];
	bool is_ready, low = false;
	struct folio *folio;

again:
	if (!READ_ONCE(pool->held))
		return NULL;
	spin_lock(&pool->lock);
	folio = pop_ready(pool);
	is_ready = folio;
	if (!folio)
		folio = pop(&pool->dirty);
	if (folio)
		pool->held--;
	if (!pool->filling && is_below_low_mark(pool)) {
		pool->filling = true;
		low = true;
	}
	spin_unlock(&pool->lock);
	if (low)
		kick(pool);
	if (folio && !is_ready && !zero(folio)) {
		set_apart(folio);
		goto again;
	}
	return folio;
}

/* Takes over a page that nobody else can reach, for its node's pool or for all. */
void actmem_pool_give(struct folio *folio)
{
	struct pool *pool = &pools[folio_nid(folio)];
	bool taken = false;

	if (!folio_memcg_kmem(folio) && !folio_test_mlocked(folio)) {
		spin_lock(&pool->lock);
		taken = pool->held < (is_paused(pool) ? floor_of(pool) : pool->target);
		if (taken) {
			folio_clear_referenced(folio);
			folio_clear_dirty(folio);
			list_add(&folio->lru, &pool->dirty);
			pool->held++;
		}
		spin_unlock(&pool->lock);
	}
	if (taken)
		kick(pool);
	else
		folio_put(folio);
}

/* How long to wait before a page may be taken; if not at all, it is counted. */
static long begin_to_fill(struct pool *pool)
{
	long wait = 0;

	spin_lock(&pool->lock);
	if (is_below_low_mark(pool))
		pool->filling = true;
	if (pool->held >= pool->target)
		pool->filling = false;
	if (!pool->filling)
		wait = MAX_SCHEDULE_TIMEOUT;
	else if (is_paused(pool))
		wait = max_t(long, pool->paused_until - jiffies, 1);
	else
		pool->held++;
	spin_unlock(&pool->lock);
	return wait;
}

/* The page in hand is zero, or (NULL) there is none after all. */
static void end_work(struct pool *pool, struct folio *folio)
{
	bool is_surplus;

	spin_lock(&pool->lock);
	is_surplus = !folio || pool->held > pool->target;
	if (is_surplus) {
		pool->held--;
	} else {
		list_add(&folio->lru, &pool->ready);
		pool->ready_count++;
	}
	spin_unlock(&pool->lock);
	if (folio && is_surplus)
		folio_put(folio);
}

static struct folio *fill_page(struct pool *pool)
{
	struct page *page = NULL;

	if (actmem_node_has_room(pool->node))
		page = alloc_pages_node(pool->node, FILL_GFP, ACTMEM_PAGE_ORDER);
	return page ? page_folio(page) : NULL;
}

/* Makes one page ready; returns how long to wait before the next. */
static long work_once(struct pool *pool)
{
	struct folio *folio;
	long wait;

	spin_lock(&pool->lock);
	folio = pop(&pool->dirty);
	spin_unlock(&pool->lock);
	if (!folio) {
		wait = begin_to_fill(pool);
		if (wait)
			return wait;
		folio = fill_page(pool);
		if (!folio) {
			end_work(pool, NULL);
			wait = pool->retry;
			pool->retry = min_t(long, 2 * pool->retry, RETRY_MAX);
			return wait;
		}
		pool->retry = RETRY_MIN;
	}
	if (!zero(folio)) {
		set_apart(folio);
		folio = NULL;
	}
	end_work(pool, folio);
	return 0;
}

static int work(void *data)
{
	struct pool *pool = data;
	int cpu_node = actmem_nearest_node(&node_states[N_CPU], pool->node);
	unsigned int count = 0;

	if (cpu_node != NUMA_NO_NODE)
		set_cpus_allowed_ptr(current, cpumask_of_node(cpu_node));
	set_user_nice(current, MAX_NICE);
	while (!kthread_should_stop()) {
		long wait;

		WRITE_ONCE(pool->kicked, false);
		wait = work_once(pool);
		cond_resched();
		if (wait) {
			wait_event_idle_timeout(pool->wait, READ_ONCE(pool->kicked) ||
						kthread_should_stop(), wait);
		} else if (++count % FILL_BATCH == 0 && !single_task_running()) {
			schedule_timeout_idle(REST);
		}
	}
	return 0;
}

static int start_worker(struct pool *pool)
{
	int cpu_node = actmem_nearest_node(&node_states[N_CPU], pool->node);
	struct task_struct *worker = kthread_create_on_node(work, pool, cpu_node,
							    "actmem_pool/%d", pool->node);

	if (IS_ERR(worker))
		return PTR_ERR(worker);
	pool->worker = worker;
	wake_up_process(worker);
	return 0;
}

static void set_target(struct pool *pool, unsigned long target)
{
	spin_lock(&pool->lock);
	pool->target = target;
	pool->filling = pool->held < target;
	pool->paused_until = jiffies;
	spin_unlock(&pool->lock);
	trim(pool, target);
	WRITE_ONCE(pool->retry, RETRY_MIN);
	kick(pool);
}

static int check_bytes(int node, u64 bytes)
{
	if (!IS_ALIGNED(bytes, ACTMEM_PAGE_BYTES))
		return -EINVAL;
	return bytes / ACTMEM_PAGE_BYTES > actmem_node_capacity(node) ? -ERANGE : 0;
}

/*
 * How much to hold ready from now on. EINVAL if that is no multiple of
 * ACTMEM_PAGE_BYTES, ERANGE if the node has less memory.
 */
int actmem_pool_set_target(int node, u64 bytes)
{
	struct pool *pool = &pools[node];
	int err;

	mutex_lock(&settings_lock);
	err = check_bytes(node, bytes);
	if (!err && bytes && !pool->worker)
		err = start_worker(pool);
	if (!err)
		set_target(pool, bytes / ACTMEM_PAGE_BYTES);
	mutex_unlock(&settings_lock);
	return err;
}

/* How much of it memory pressure leaves. The errors are the same. */
int actmem_pool_set_floor(int node, u64 bytes)
{
	struct pool *pool = &pools[node];
	int err = check_bytes(node, bytes);

	if (err)
		return err;
	spin_lock(&pool->lock);
	pool->floor = bytes / ACTMEM_PAGE_BYTES;
	spin_unlock(&pool->lock);
	return 0;
}

u64 actmem_pool_target(int node)
{
	return READ_ONCE(pools[node].target) * ACTMEM_PAGE_BYTES;
}

u64 actmem_pool_floor(int node)
{
	return READ_ONCE(pools[node].floor) * ACTMEM_PAGE_BYTES;
}

u64 actmem_pool_ready(int node)
{
	return READ_ONCE(pools[node].ready_count) * ACTMEM_PAGE_BYTES;
}

/* Pages, ready or not. */
unsigned long actmem_pool_held(int node)
{
	return READ_ONCE(pools[node].held);
}

/* The kernel counts small pages here, as in most caches of pages. */
static unsigned long count_freeable(struct shrinker *shrinker, struct shrink_control *control)
{
	struct pool *pool = &pools[control->nid];
	unsigned long held, floor;

	spin_lock(&pool->lock);
	held = pool->held;
	floor = floor_of(pool);
	spin_unlock(&pool->lock);
	return held > floor ? ACTMEM_SMALL_PAGES(held - floor) : 0;
}

static unsigned long free_some(struct shrinker *shrinker, struct shrink_control *control)
{
	unsigned long wanted = DIV_ROUND_UP(control->nr_to_scan, HPAGE_PMD_NR);
	struct pool *pool = &pools[control->nid];
	unsigned long keep, freed;

	spin_lock(&pool->lock);
	keep = floor_of(pool);
	if (pool->held > keep + wanted)
		keep = pool->held - wanted;
	pool->paused_until = jiffies + PRESSURE_PAUSE;
	spin_unlock(&pool->lock);
	freed = trim(pool, keep);
	/* So that the worker fills it again when the pause is over. */
	kick(pool);
	control->nr_scanned = ACTMEM_SMALL_PAGES(freed);
	return freed ? ACTMEM_SMALL_PAGES(freed) : SHRINK_STOP;
}

static struct actmem_shrinker pool_shrinker = {
	.count_objects = count_freeable,
	.scan_objects = free_some,
	.batch = HPAGE_PMD_NR,
};

#ifdef CONFIG_MEMORY_HOTPLUG
/*
 * Memory that holds pages of a pool cannot go: the kernel refuses before it
 * asks anybody. So all there is to do is not to want more than what is left.
 */
static int memory_changes(struct notifier_block *block, unsigned long action, void *arg)
{
	int node;

	if (action != MEM_OFFLINE)
		return NOTIFY_DONE;
	mutex_lock(&settings_lock);
	for_each_node(node) {
		unsigned long capacity = actmem_node_capacity(node);

		if (pools[node].target > capacity) {
			pr_warn("actmem: node %d has %llu bytes left, less than its pool of %llu, which shrinks\n",
				node, capacity * ACTMEM_PAGE_BYTES, actmem_pool_target(node));
			set_target(&pools[node], capacity);
		}
	}
	mutex_unlock(&settings_lock);
	return NOTIFY_OK;
}

static struct notifier_block memory_notifier = {
	.notifier_call = memory_changes,
};
#endif

static int watch_memory(void)
{
#ifdef CONFIG_MEMORY_HOTPLUG
	return register_memory_notifier(&memory_notifier);
#else
	return 0;
#endif
}

static void unwatch_memory(void)
{
#ifdef CONFIG_MEMORY_HOTPLUG
	unregister_memory_notifier(&memory_notifier);
#endif
}

int actmem_pool_init(void)
{
	int node, err;

	pools = kcalloc(nr_node_ids, sizeof(*pools), GFP_KERNEL);
	if (!pools)
		return -ENOMEM;
	for (node = 0; node < nr_node_ids; node++) {
		spin_lock_init(&pools[node].lock);
		INIT_LIST_HEAD(&pools[node].ready);
		INIT_LIST_HEAD(&pools[node].dirty);
		init_waitqueue_head(&pools[node].wait);
		pools[node].paused_until = jiffies;
		pools[node].retry = RETRY_MIN;
		pools[node].node = node;
	}
	err = actmem_shrinker_register(&pool_shrinker, "actmem-pool");
	if (err)
		goto free_pools;
	err = watch_memory();
	if (err)
		goto unregister_shrinker;
	return 0;

unregister_shrinker:
	actmem_shrinker_unregister(&pool_shrinker);
free_pools:
	kfree(pools);
	return err;
}

/* No region is left that could give pages back. */
void actmem_pool_exit(void)
{
	int node;

	unwatch_memory();
	actmem_shrinker_unregister(&pool_shrinker);
	for (node = 0; node < nr_node_ids; node++) {
		if (pools[node].worker)
			kthread_stop(pools[node].worker);
		trim(&pools[node], 0);
		WARN_ON_ONCE(pools[node].held);
	}
	kfree(pools);
}
