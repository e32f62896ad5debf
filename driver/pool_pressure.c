// SPDX-License-Identifier: GPL-2.0
/*
 * What makes pools smaller: memory pressure, and memory that goes away.
 *
 * Under pressure a pool gives back what it holds until it has, with what it has
 * lent, no more than its floor, and for the ten seconds that follow it is not
 * filled, and takes back no more than that.
 */
#include <linux/memory.h>
#include <linux/shrinker.h>

#include "actmem.h"
#include "compat/compat.h"
#include "pool.h"
#include "trace.h"

#define PAUSE	(10 * HZ)

/* The kernel counts small pages here, as in most caches of pages. */
static unsigned long count_freeable(struct shrinker *shrinker, struct shrink_control *control)
{
	struct actmem_pool *pool = &actmem_pools[control->nid];
	unsigned long size, least, freeable = 0;

	spin_lock(&pool->lock);
	size = actmem_pool_size(pool);
	least = actmem_pool_least(pool);
	if (size > least)
		freeable = min(pool->held, size - least);
	spin_unlock(&pool->lock);
	return ACTMEM_SMALL_PAGES(freeable);
}

static unsigned long free_some(struct shrinker *shrinker, struct shrink_control *control)
{
	unsigned long wanted = DIV_ROUND_UP(control->nr_to_scan, HPAGE_PMD_NR);
	struct actmem_pool *pool = &actmem_pools[control->nid];
	unsigned long size, freed;

	spin_lock(&pool->lock);
	size = actmem_pool_least(pool);
	if (actmem_pool_size(pool) > size + wanted)
		size = actmem_pool_size(pool) - wanted;
	pool->paused_until = jiffies + PAUSE;
	spin_unlock(&pool->lock);
	freed = actmem_pool_trim(pool, size);
	trace_actmem_pool_shrink(pool->node, wanted, freed, READ_ONCE(pool->held));
	/* So that the worker fills it again when the pause is over. */
	actmem_pool_kick(pool);
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
	if (action != MEM_OFFLINE)
		return NOTIFY_DONE;
	actmem_pools_fit();
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

int actmem_pool_pressure_init(void)
{
	int err = actmem_shrinker_register(&pool_shrinker, "actmem-pool");

	if (err)
		return err;
	err = watch_memory();
	if (err)
		actmem_shrinker_unregister(&pool_shrinker);
	return err;
}

void actmem_pool_pressure_exit(void)
{
	unwatch_memory();
	actmem_shrinker_unregister(&pool_shrinker);
}
