// SPDX-License-Identifier: GPL-2.0
/*
 * What regions have and may have: on a node, of a user, and of a mount. Each is a
 * quota. A page counts from before it is made until it is gone, and against all of
 * them or none, so that no limit is ever exceeded.
 *
 * The memory cgroup is charged by the page allocator, with __GFP_ACCOUNT.
 */
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "actmem.h"
#include "mount.h"

/**
 * struct node_account - pages on one node
 * @pages: of all regions
 * @lingering: those of them that belong to lingering regions
 * @poisoned: in which the hardware has erred; it never falls
 */
struct node_account {
	struct actmem_quota pages;
	atomic_long_t lingering;
	atomic_long_t poisoned;
};

/* Protects every quota, and actmem_region.charged; held for an instant only. */
static DEFINE_SPINLOCK(account_lock);
static unsigned long default_limit = ACTMEM_NO_LIMIT;

static struct node_account *nodes;
static atomic_long_t region_total;
static atomic_long_t lingering_region_total;

int actmem_account_init(void)
{
	int node;

	nodes = kcalloc(nr_node_ids, sizeof(*nodes), GFP_KERNEL);
	if (!nodes)
		return -ENOMEM;
	for (node = 0; node < nr_node_ids; node++)
		nodes[node].pages.limit = ACTMEM_NO_LIMIT;
	return 0;
}

void actmem_account_exit(void)
{
	int node;

	for (node = 0; node < nr_node_ids; node++)
		WARN_ON_ONCE(nodes[node].pages.used || atomic_long_read(&nodes[node].lingering));
	kfree(nodes);
}

static unsigned long quota_left(const struct actmem_quota *quota)
{
	lockdep_assert_held(&account_lock);
	if (quota->limit == ACTMEM_NO_LIMIT)
		return ACTMEM_NO_LIMIT;
	return quota->limit - min(quota->limit, quota->used);
}

/* For one thing more; false if the limit does not let it be. */
bool actmem_quota_charge(struct actmem_quota *quota)
{
	bool fits;

	spin_lock(&account_lock);
	fits = quota_left(quota);
	quota->used += fits;
	spin_unlock(&account_lock);
	return fits;
}

void actmem_quota_uncharge(struct actmem_quota *quota)
{
	spin_lock(&account_lock);
	quota->used--;
	spin_unlock(&account_lock);
}

/* Both of one moment. */
struct actmem_quota actmem_quota_read(const struct actmem_quota *quota)
{
	struct actmem_quota read;

	spin_lock(&account_lock);
	read = *quota;
	spin_unlock(&account_lock);
	return read;
}

/* Things that may be had yet, ACTMEM_NO_LIMIT if there is no limit. */
unsigned long actmem_quota_left(const struct actmem_quota *quota)
{
	unsigned long left;

	spin_lock(&account_lock);
	left = quota_left(quota);
	spin_unlock(&account_lock);
	return left;
}

/* Below what is used, nothing more is granted until enough has gone. */
void actmem_quota_set_limit(struct actmem_quota *quota, unsigned long limit)
{
	spin_lock(&account_lock);
	quota->limit = limit;
	spin_unlock(&account_lock);
}

/* EBUSY if more is used; @used tells how much in any case. */
int actmem_quota_try_limit(struct actmem_quota *quota, unsigned long limit, unsigned long *used)
{
	int err = 0;

	spin_lock(&account_lock);
	*used = quota->used;
	if (limit < quota->used)
		err = -EBUSY;
	else
		quota->limit = limit;
	spin_unlock(&account_lock);
	return err;
}

/* Of users without a limit of their own, and without CAP_IPC_LOCK. */
unsigned long actmem_default_limit(void)
{
	return READ_ONCE(default_limit);
}

void actmem_set_default_limit(unsigned long pages)
{
	spin_lock(&account_lock);
	WRITE_ONCE(default_limit, pages);
	spin_unlock(&account_lock);
}

static int quota_check(const struct actmem_quota *quota, unsigned long pages, int err, u32 reason,
		       struct actmem_why *why)
{
	unsigned long left = quota_left(quota);

	if (pages <= left)
		return 0;
	why->reason = reason;
	why->node = NUMA_NO_NODE;
	why->wanted = pages * ACTMEM_PAGE_BYTES;
	why->available = left * ACTMEM_PAGE_BYTES;
	return err;
}

/*
 * The administrator's limit holds if there is one, and stands in for RLIMIT_MEMLOCK of
 * the process that made the region.
 */
static int region_check_user(const struct actmem_region *region, unsigned long pages,
			     struct actmem_why *why)
{
	struct actmem_quota quota = region->user->pages;

	if (quota.limit == ACTMEM_NO_LIMIT && region->memlock_pages != ACTMEM_NO_LIMIT)
		quota.limit = default_limit;
	if (quota.limit != ACTMEM_NO_LIMIT)
		return quota_check(&quota, pages, -EDQUOT, ACTMEM_WHY_USER_LIMIT, why);
	quota.limit = region->memlock_pages;
	return quota_check(&quota, pages, -ENOMEM, ACTMEM_WHY_MEMLOCK, why);
}

static int region_check_room(const struct actmem_region *region, unsigned long pages,
			     struct actmem_why *why)
{
	int err = 0;

	if (region->mount)
		err = quota_check(&region->mount->pages, pages, -ENOSPC, ACTMEM_WHY_MOUNT_LIMIT,
				  why);
	return err ?: region_check_user(region, pages, why);
}

/*
 * Whether the user and the mount could have so many pages, but for those that the region
 * has or is about to get: EDQUOT, ENOMEM or ENOSPC.
 */
int actmem_check_room(const struct actmem_region *region, unsigned long pages,
		      struct actmem_why *why)
{
	int err;

	spin_lock(&account_lock);
	err = region_check_room(region, pages - min(pages, region->charged), why);
	spin_unlock(&account_lock);
	return err;
}

static void region_charge(struct actmem_region *region, long pages)
{
	lockdep_assert_held(&account_lock);
	region->charged += pages;
	region->user->pages.used += pages;
	if (region->mount)
		region->mount->pages.used += pages;
}

/* For a page that the region is about to get; the errors of actmem_check_room(). */
int actmem_charge_page(struct actmem_region *region, struct actmem_why *why)
{
	int err;

	spin_lock(&account_lock);
	err = region_check_room(region, 1, why);
	if (!err)
		region_charge(region, 1);
	spin_unlock(&account_lock);
	return err;
}

/* A page that the region has no more, or has not got after all. */
void actmem_uncharge_page(struct actmem_region *region)
{
	spin_lock(&account_lock);
	region_charge(region, -1);
	spin_unlock(&account_lock);
}

struct actmem_quota *actmem_node_quota(int node)
{
	return &nodes[node].pages;
}

void actmem_count_region(int change)
{
	atomic_long_add(change, &region_total);
}

/* As the last act of a region that goes: whoever then reads 0 finds all else done. */
void actmem_count_lingering_region(int change)
{
	atomic_long_add_return_release(change, &lingering_region_total);
}

static void count_lingering_pages(struct actmem_region *region, int node, long change)
{
	atomic_long_add(change, &nodes[node].lingering);
	atomic_long_add(change, &region->user->lingering_pages);
}

/* A page of the region has come to be on a node, or has gone from there. */
void actmem_count_page(struct actmem_region *region, int node, int change)
{
	lockdep_assert_held(&region->lock);
	region->pages_held += change;
	region->node_pages_held[node] += change;
	if (region->lingering)
		count_lingering_pages(region, node, change);
}

/* From now on its pages are lingering ones. */
void actmem_count_as_lingering(struct actmem_region *region)
{
	int node;

	lockdep_assert_held(&region->lock);
	region->lingering = true;
	for_each_node(node)
		count_lingering_pages(region, node, region->node_pages_held[node]);
}

unsigned long actmem_regions_total(void)
{
	return atomic_long_read(&region_total);
}

unsigned long actmem_lingering_regions_total(void)
{
	return atomic_long_read_acquire(&lingering_region_total);
}

unsigned long actmem_node_lingering(int node)
{
	return atomic_long_read(&nodes[node].lingering);
}

/* It is in a region, or has been set apart. */
void actmem_count_poisoned_page(int node)
{
	atomic_long_inc(&nodes[node].poisoned);
}

unsigned long actmem_node_poisoned(int node)
{
	return atomic_long_read(&nodes[node].poisoned);
}
