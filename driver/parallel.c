// SPDX-License-Identifier: GPL-2.0
/*
 * Long work on the memory of a node, shared between several of its CPUs.
 *
 * The caller works too, and a helper that has not begun when the items have run
 * out is cancelled: the work gets done even if no helper ever runs. Helpers
 * come from a workqueue that stays off isolated CPUs, as such queues do, and
 * that the administrator can tame further, by its cpumask, nice and max_active
 * under /sys/devices/virtual/workqueue/actmem/.
 */
#include <linux/atomic.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/workqueue.h>

#include "actmem.h"

/* So many come close to a node's memory bandwidth, and leave CPUs to others. */
#define HELPERS_MAX	16

/**
 * struct job - items that remain, for everybody who works on them
 * @work: what to do for each
 * @context: of the caller
 * @items: how many there are
 * @next: the first that nobody has begun
 * @err: the first error, after which no item is begun
 */
struct job {
	int (*work)(void *context, unsigned long item);
	void *context;
	unsigned long items;
	atomic_long_t next;
	int err;
};

struct helper {
	struct work_struct work;
	struct job *job;
};

static struct workqueue_struct *helper_queue;

static void work_on(struct job *job)
{
	while (!READ_ONCE(job->err)) {
		unsigned long item = atomic_long_fetch_inc(&job->next);
		int err;

		if (item >= job->items)
			break;
		err = job->work(job->context, item);
		if (err)
			cmpxchg(&job->err, 0, err);
		cond_resched();
	}
}

static void help(struct work_struct *work)
{
	work_on(container_of(work, struct helper, work)->job);
}

static unsigned int count_helpers(int cpu_node, unsigned long items)
{
	unsigned long most;

	if (cpu_node == NUMA_NO_NODE || items < 2)
		return 0;
	/* Half of the CPUs, and one where there is but one: the caller may be elsewhere. */
	most = min(DIV_ROUND_UP(cpumask_weight(cpumask_of_node(cpu_node)), 2), HELPERS_MAX);
	return min(most, items - 1);
}

/**
 * actmem_parallel() - work on items by several CPUs of a node
 * @node: whose memory it is; if it has no CPUs, the nearest that has helps
 * @items: how many; they are begun in their order
 * @work: does one item, from 0 to @items - 1, in the caller's task or in a
 *	worker, which does not get the caller's signals and is not in its cgroups.
 *	It may sleep. An item should take a tenth of a millisecond at least, and
 *	some milliseconds at most, as this is how long it takes to stop.
 * @context: for @work
 *
 * Returns 0, or the first error of @work, after which items that nobody has
 * begun are left out. Whatever was begun has ended.
 */
int actmem_parallel(int node, unsigned long items, int (*work)(void *context, unsigned long item),
		    void *context)
{
	int cpu_node = actmem_nearest_node(&node_states[N_CPU], node);
	unsigned int i, count = count_helpers(cpu_node, items);
	struct job job = { .work = work, .context = context, .items = items };
	struct helper *helpers = NULL;

	/* Without memory for helpers, the caller does it alone. */
	if (count)
		helpers = kcalloc(count, sizeof(*helpers), GFP_KERNEL | __GFP_NOWARN);
	if (!helpers)
		count = 0;
	for (i = 0; i < count; i++) {
		helpers[i].job = &job;
		INIT_WORK(&helpers[i].work, help);
		queue_work_node(cpu_node, helper_queue, &helpers[i].work);
	}
	work_on(&job);
	for (i = 0; i < count; i++)
		cancel_work_sync(&helpers[i].work);
	kfree(helpers);
	return job.err;
}

int actmem_parallel_init(void)
{
	helper_queue = alloc_workqueue("actmem", WQ_UNBOUND | WQ_SYSFS, 0);
	return helper_queue ? 0 : -ENOMEM;
}

void actmem_parallel_exit(void)
{
	destroy_workqueue(helper_queue);
}
