// SPDX-License-Identifier: GPL-2.0
/*
 * Who pays: RLIMIT_MEMLOCK of the user, and the totals of the machine. The
 * memory cgroup is charged by the page allocator, with __GFP_ACCOUNT.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "actmem.h"

/**
 * struct node_total - pages on one node
 * @pages: of all regions
 * @lingering_pages: those of them that belong to lingering regions
 */
struct node_total {
	atomic_long_t pages;
	atomic_long_t lingering_pages;
};

static struct node_total *node_totals;
static atomic_long_t region_total;
static atomic_long_t lingering_region_total;

int actmem_account_init(void)
{
	node_totals = kcalloc(nr_node_ids, sizeof(*node_totals), GFP_KERNEL);
	return node_totals ? 0 : -ENOMEM;
}

void actmem_account_exit(void)
{
	kfree(node_totals);
}

/*
 * Charges all pages of a region to the caller, unless the caller may lock
 * any amount of memory. io_uring, AF_XDP and perf charge the same counter.
 */
int actmem_charge(struct actmem_region *region, struct actmem_ioctl_create *arg)
{
	unsigned long wanted = ACTMEM_SMALL_PAGES(region->page_count);
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user = current_user();
	long old;

	if (capable(CAP_IPC_LOCK))
		return 0;

	old = atomic_long_read(&user->locked_vm);
	do {
		if (old + wanted > limit) {
			arg->why = ACTMEM_WHY_MEMLOCK;
			arg->why_wanted = wanted << PAGE_SHIFT;
			arg->why_available = limit > old ? (limit - old) << PAGE_SHIFT : 0;
			return -ENOMEM;
		}
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &old, old + wanted));
	region->charged = get_uid(user);
	return 0;
}

void actmem_uncharge(struct actmem_region *region, unsigned long pages)
{
	if (region->charged)
		atomic_long_sub(ACTMEM_SMALL_PAGES(pages), &region->charged->locked_vm);
}

void actmem_count_region(int change)
{
	atomic_long_add(change, &region_total);
}

void actmem_count_lingering_region(int change)
{
	atomic_long_add(change, &lingering_region_total);
}

void actmem_count_pages(int node, long change)
{
	atomic_long_add(change, &node_totals[node].pages);
}

void actmem_count_lingering_pages(int node, long change)
{
	atomic_long_add(change, &node_totals[node].lingering_pages);
}

unsigned long actmem_regions_total(void)
{
	return atomic_long_read(&region_total);
}

unsigned long actmem_lingering_regions_total(void)
{
	return atomic_long_read(&lingering_region_total);
}

u64 actmem_node_bytes(int node)
{
	return atomic_long_read(&node_totals[node].pages) * ACTMEM_PAGE_BYTES;
}

u64 actmem_node_lingering_bytes(int node)
{
	return atomic_long_read(&node_totals[node].lingering_pages) * ACTMEM_PAGE_BYTES;
}
