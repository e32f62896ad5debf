// SPDX-License-Identifier: GPL-2.0
/*
 * The worker of a pool: makes pages ready in the background.
 *
 * What regions have given back is zeroed first. Then the pool is filled from
 * the page allocator: that starts when what it holds and has lent is less than
 * its low mark, 7/8 of its target, and goes on to the target. It takes what is
 * free while the node stays above its high watermarks, and never reclaims: a
 * fill that finds nothing is tried again after a second, then two, and so on up
 * to a minute. Neither does it compact: that stalls a running job, which loses
 * mappings on all of its CPUs and waits for pages that are being moved, and the
 * page allocator offers it to modules only with reclaim behind it. Whoever wants
 * it, and knows when, has /sys/devices/system/node/nodeN/compact.
 *
 * The worker runs at the lowest priority on the CPUs of its node, or of the
 * nearest that has any, without those that are isolated. Before it begins, and
 * after each batch of pages, it rests for ten milliseconds if anybody else wants
 * its CPU.
 */
#include <linux/cpumask.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/isolation.h>
#include <linux/sched/stat.h>
#include <linux/topology.h>

#include "actmem.h"
#include "pool.h"
#include "trace.h"

/* What is free, and nothing that would have to be reclaimed for it. */
#define FILL_GFP	((GFP_USER & ~__GFP_RECLAIM) | __GFP_COMP | __GFP_THISNODE | \
			 __GFP_NOMEMALLOC | __GFP_NOWARN)

#define BATCH		8
#define REST		msecs_to_jiffies(10)
#define RETRY_MIN	HZ
#define RETRY_MAX	(64 * HZ)
/* A wait that the administrator ought to know of. */
#define RETRY_LONG	(4 * HZ)

void actmem_pool_kick(struct actmem_pool *pool)
{
	WRITE_ONCE(pool->kicked, true);
	wake_up(&pool->wait);
}

/* How long to wait before a page may be taken; if not at all, it is counted. */
static long begin_to_fill(struct actmem_pool *pool)
{
	unsigned long size;
	long wait = 0;

	spin_lock(&pool->lock);
	size = actmem_pool_size(pool);
	if (size < pool->target - pool->target / 8)
		pool->filling = true;
	if (size >= pool->target) {
		pool->filling = false;
		pool->stalled = false;
	}
	if (!pool->filling)
		wait = MAX_SCHEDULE_TIMEOUT;
	else if (actmem_pool_is_paused(pool))
		wait = max_t(long, pool->paused_until - jiffies, 1);
	else
		pool->held++;
	spin_unlock(&pool->lock);
	return wait;
}

/* The page in hand is zero, or (NULL) there is none after all. */
static void end_work(struct actmem_pool *pool, struct folio *folio)
{
	bool is_surplus;

	spin_lock(&pool->lock);
	is_surplus = !folio || actmem_pool_size(pool) > pool->target;
	if (is_surplus) {
		pool->held--;
	} else {
		list_add(&folio->lru, &pool->ready);
		pool->ready_count++;
	}
	spin_unlock(&pool->lock);
	if (folio && is_surplus)
		actmem_pool_release(folio);
}

static struct folio *alloc_folio(int node)
{
	struct page *page = NULL;

	if (actmem_node_has_room(node))
		page = alloc_pages_node(node, FILL_GFP, ACTMEM_PAGE_ORDER);
	return page ? page_folio(page) : NULL;
}

/* Told once, until the pool has been full. */
static void tell_stall(struct actmem_pool *pool, long wait)
{
	unsigned long held, target;
	bool is_news;

	spin_lock(&pool->lock);
	held = pool->held;
	target = pool->target;
	is_news = wait >= RETRY_LONG && !pool->stalled;
	pool->stalled |= is_news;
	spin_unlock(&pool->lock);
	trace_actmem_pool_stall(pool->node, held, target, jiffies_to_msecs(wait));
	if (is_news)
		actmem_pool_stalled(pool->node, held, target);
}

/* Makes one page ready; returns how long to wait before the next. */
static long work_once(struct actmem_pool *pool)
{
	u64 began = actmem_latency_begin(trace_actmem_pool_fill_enabled());
	struct folio *folio;
	long wait;

	spin_lock(&pool->lock);
	folio = actmem_pool_pop(&pool->dirty);
	spin_unlock(&pool->lock);
	if (!folio) {
		wait = begin_to_fill(pool);
		if (wait)
			return wait;
		folio = alloc_folio(pool->node);
		if (!folio) {
			end_work(pool, NULL);
			wait = pool->retry;
			tell_stall(pool, wait);
			pool->retry = min_t(long, 2 * pool->retry, RETRY_MAX);
			return wait;
		}
		pool->retry = RETRY_MIN;
	}
	end_work(pool, actmem_pool_zero(folio) ? folio : NULL);
	trace_actmem_pool_fill(pool->node, READ_ONCE(pool->ready_count), READ_ONCE(pool->target),
			       actmem_latency_end(began));
	return 0;
}

/* If all CPUs near the node are isolated, it runs on any that is not. */
static void choose_cpus(int node)
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

static int work(void *data)
{
	struct actmem_pool *pool = data;
	unsigned int count = 0;

	choose_cpus(pool->node);
	set_user_nice(current, MAX_NICE);
	while (!kthread_should_stop()) {
		long wait;

		/* Before the first page, too: who kicks is in need of the CPU. */
		if (count++ % BATCH == 0 && !single_task_running())
			schedule_timeout_idle(REST);
		WRITE_ONCE(pool->kicked, false);
		wait = work_once(pool);
		cond_resched();
		if (wait) {
			wait_event_idle_timeout(pool->wait, READ_ONCE(pool->kicked) ||
						kthread_should_stop(), wait);
			count = 0;
		}
	}
	return 0;
}

void actmem_pool_worker_init(struct actmem_pool *pool)
{
	init_waitqueue_head(&pool->wait);
	pool->retry = RETRY_MIN;
}

/* If it has not been started yet. */
int actmem_pool_worker_start(struct actmem_pool *pool)
{
	int cpu_node = actmem_nearest_node(&node_states[N_CPU], pool->node);
	struct task_struct *worker;

	if (pool->worker)
		return 0;
	worker = kthread_create_on_node(work, pool, cpu_node, "actmem_pool/%d", pool->node);
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	pool->worker = worker;
	wake_up_process(worker);
	return 0;
}

void actmem_pool_worker_stop(struct actmem_pool *pool)
{
	if (pool->worker)
		kthread_stop(pool->worker);
}

/* Not only when the time has come that a fill in vain has set. */
void actmem_pool_retry_now(struct actmem_pool *pool)
{
	WRITE_ONCE(pool->retry, RETRY_MIN);
	actmem_pool_kick(pool);
}
