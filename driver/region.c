// SPDX-License-Identifier: GPL-2.0
/*
 * A region first has an inode. If code outside the driver still pins pages when the inode is gone,
 * the region lingers until the pins end. Then the region is freed.
 *
 * The driver gets no notification when a pin ends. A worker therefore checks lingering regions once
 * a second, and when a task is short of memory. No other task checks lingering regions, because
 * other tasks would wait for such a task if it gets little CPU time. Calls that report on lingering
 * regions show the state at the last check.
 */
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "actmem.h"
#include "compat/compat.h"
#include "mount.h"
#include "trace.h"

#define SWEEP_INTERVAL	HZ

static DEFINE_XARRAY(regions);
static atomic64_t last_id;
atomic_long_t actmem_region_total;
static atomic_long_t lingering_total;

static DEFINE_SPINLOCK(lingering_lock);
static LIST_HEAD(lingering_regions);

/* Numbers of checks of the lingering regions; written only by the worker. */
static unsigned long sweeps_begun, sweeps_ended;
static DECLARE_WAIT_QUEUE_HEAD(swept);

static void regions_sweep_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(sweeper, regions_sweep_work);

void actmem_region_put(struct actmem_region *region)
{
	if (!refcount_dec_and_test(&region->ref))
		return;
	if (region->mount)
		actmem_mount_put(region->mount);
	put_pid(region->pid);
	WARN_ON_ONCE(!xa_empty(&region->slots));
	kfree_rcu(region, rcu);
}

struct actmem_region *actmem_region_find(u64 id)
{
	struct actmem_region *region;

	rcu_read_lock();
	region = xa_load(&regions, id);
	if (region && !refcount_inc_not_zero(&region->ref))
		region = NULL;
	rcu_read_unlock();
	return region;
}

/* Returns the region with the smallest id greater than *@id, and stores that id in *@id. */
struct actmem_region *actmem_region_next(u64 *id)
{
	struct actmem_region *region;
	unsigned long index = *id;

	rcu_read_lock();
	do {
		region = xa_find_after(&regions, &index, ULONG_MAX, XA_PRESENT);
	} while (region && !refcount_inc_not_zero(&region->ref));
	rcu_read_unlock();
	*id = index;
	return region;
}

/* Returns true if the range consists of whole pages of the region and is not empty. */
bool actmem_region_has_range(const struct actmem_region *region, u64 offset, u64 length)
{
	u64 bytes = region->page_count * ACTMEM_PAGE_BYTES;

	return length && IS_ALIGNED(offset | length, ACTMEM_PAGE_BYTES) && length <= bytes &&
	       offset <= bytes - length;
}

/* Pairs with regions_sweep_work(): a caller that gets 0 sees all effects of the last sweep. */
unsigned long actmem_lingering_regions_total(void)
{
	return atomic_long_read_acquire(&lingering_total);
}

/* Gives the region the name of its file. */
void actmem_region_set_name(struct actmem_region *region, const struct dentry *dentry)
{
	spin_lock(&region->lock);
	strscpy_pad(region->name, dentry->d_name.name, sizeof(region->name));
	spin_unlock(&region->lock);
}

static void region_linger(struct actmem_region *region)
{
	actmem_account_linger(region);
	atomic_long_inc(&lingering_total);
	/*
	 * __module_get() is safe: the caller already holds a reference through the open device file
	 * or the superblock.
	 */
	__module_get(THIS_MODULE);
	spin_lock(&lingering_lock);
	list_add_tail(&region->linger, &lingering_regions);
	spin_unlock(&lingering_lock);
	schedule_delayed_work(&sweeper, SWEEP_INTERVAL);
}

static void region_end(struct actmem_region *region)
{
	xa_erase(&regions, region->id);
	actmem_user_detach(region);
	atomic_long_dec(&actmem_region_total);
	actmem_region_put(region);
}

/* Ends a region that has no inode, and takes over the caller's reference. */
void actmem_region_retire(struct actmem_region *region)
{
	/* Try twice, because GUP-fast takes references for a short time. */
	if (actmem_slots_give_back(region) || actmem_slots_give_back(region))
		region_end(region);
	else
		region_linger(region);
}

/* Gives back those pages of lingering regions that are no longer pinned. */
static void regions_sweep_work(struct work_struct *work)
{
	struct actmem_region *region, *next;
	LIST_HEAD(checked);

	WRITE_ONCE(sweeps_begun, sweeps_begun + 1);
	spin_lock(&lingering_lock);
	list_splice_init(&lingering_regions, &checked);
	spin_unlock(&lingering_lock);
	list_for_each_entry_safe(region, next, &checked, linger) {
		if (!actmem_slots_give_back(region))
			continue;
		list_del(&region->linger);
		region_end(region);
		atomic_long_dec_return_release(&lingering_total);
		module_put(THIS_MODULE);
	}
	spin_lock(&lingering_lock);
	list_splice(&checked, &lingering_regions);
	if (!list_empty(&lingering_regions))
		schedule_delayed_work(&sweeper, SWEEP_INTERVAL);
	spin_unlock(&lingering_lock);
	/* Pairs with actmem_regions_sweep(). */
	smp_store_release(&sweeps_ended, sweeps_begun);
	wake_up_all(&swept);
}

/*
 * Waits until the worker has checked the lingering regions. Returns false if no region lingers, or
 * if the task was killed. Does not use flush_delayed_work(), because a kill would not end that
 * wait, which is long if the worker frees a large region of another tenant.
 */
bool actmem_regions_sweep(void)
{
	unsigned long wanted = READ_ONCE(sweeps_begun) + 1;

	if (!actmem_lingering_regions_total())
		return false;
	/* End the delay, if a run waits for its timer. If a run is in progress, queue another. */
	cancel_delayed_work(&sweeper);
	schedule_delayed_work(&sweeper, 0);
	/* Pairs with regions_sweep_work(): the caller sees all effects of the check. */
	return !wait_event_killable(swept, (long)(smp_load_acquire(&sweeps_ended) - wanted) >= 0);
}

/* No region is left when the module is unloaded, but the worker may still be running. */
void actmem_regions_exit(void)
{
	cancel_delayed_work_sync(&sweeper);
	xa_destroy(&regions);
}

static struct actmem_region *region_alloc(const struct actmem_ioctl_create *arg,
					  struct actmem_mount *mount)
{
	struct actmem_region *region = kzalloc(struct_size(region, node_pages_held, nr_node_ids),
					       GFP_KERNEL_ACCOUNT);

	if (!region)
		return NULL;
	refcount_set(&region->ref, 1);
	spin_lock_init(&region->lock);
	mutex_init(&region->unmap_lock);
	xa_init(&region->slots);
	xa_init(&region->charges);
	init_waitqueue_head(&region->unclaimed);
	region->flags = arg->flags;
	region->policy = arg->policy;
	if (mount) {
		refcount_inc(&mount->ref);
		region->mount = mount;
	}
	region->page_count = arg->length / ACTMEM_PAGE_BYTES;
	region->owner = current_euid();
	region->pid = get_pid(task_tgid(current));
	strscpy(region->name, arg->name, sizeof(region->name));
	return region;
}

/*
 * Creates a region without pages and without an inode, and adds it to the table. @mount is NULL for
 * an unnamed region. Stores the id or, on failure, the reason in @arg.
 */
struct actmem_region *actmem_region_create(struct actmem_ioctl_create *arg,
					   struct actmem_mount *mount)
{
	struct actmem_region *region;
	int err;

	region = region_alloc(arg, mount);
	if (!region)
		return ERR_PTR(-ENOMEM);
	err = actmem_place_check(region, arg) ?: actmem_user_attach(region);
	if (err)
		goto put;
	region->id = atomic64_inc_return(&last_id);
	err = xa_insert(&regions, region->id, region, GFP_KERNEL_ACCOUNT);
	if (err)
		goto detach;
	atomic_long_inc(&actmem_region_total);
	arg->id = region->id;
	return region;

detach:
	actmem_user_detach(region);
put:
	trace_actmem_alloc_fail(region, err, &arg->why);
	actmem_region_put(region);
	return ERR_PTR(err);
}
