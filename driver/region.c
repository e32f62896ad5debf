// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a region: live (it has an inode), then lingering for as long as
 * somebody outside still pins pages of it, then freed.
 *
 * Nobody tells the driver when a pin goes, so a worker looks after lingering regions
 * once a second, and whoever is short of memory does once. Readers are told what
 * the worker has seen.
 */
#include <linux/cred.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "actmem.h"
#include "compat/compat.h"
#include "mount.h"
#include "trace.h"

#define SWEEP_INTERVAL	HZ

static DEFINE_XARRAY(regions);
static atomic64_t last_id;
static atomic_long_t region_total;
static atomic_long_t lingering_total;

/* Protects the list; taken before the lock of a region. */
static DEFINE_MUTEX(lingering_lock);
static LIST_HEAD(lingering_regions);

static void regions_sweep_work(struct work_struct *work)
{
	actmem_regions_sweep();
}

static DECLARE_DELAYED_WORK(sweeper, regions_sweep_work);

static void region_free(struct kref *ref)
{
	struct actmem_region *region = container_of(ref, struct actmem_region, ref);

	if (region->mount)
		actmem_mount_put(region->mount);
	put_pid(region->pid);
	kvfree(region->folios);
	actmem_dmem_region_exit(region);
	kfree(region->node_pages_held);
	kfree_rcu(region, rcu);
}

void actmem_region_put(struct actmem_region *region)
{
	kref_put(&region->ref, region_free);
}

struct actmem_region *actmem_region_find(u64 id)
{
	struct actmem_region *region;

	rcu_read_lock();
	region = xa_load(&regions, id);
	if (region && !kref_get_unless_zero(&region->ref))
		region = NULL;
	rcu_read_unlock();
	return region;
}

/* The region with the smallest id greater than @id, which is set to it. */
struct actmem_region *actmem_region_next(u64 *id)
{
	struct actmem_region *region;
	unsigned long index = *id;

	rcu_read_lock();
	do {
		region = xa_find_after(&regions, &index, ULONG_MAX, XA_PRESENT);
	} while (region && !kref_get_unless_zero(&region->ref));
	rcu_read_unlock();
	*id = index;
	return region;
}

unsigned long actmem_regions_total(void)
{
	return atomic_long_read(&region_total);
}

/* Pairs with actmem_regions_sweep(): whoever reads 0 finds all else done. */
unsigned long actmem_lingering_regions_total(void)
{
	return atomic_long_read_acquire(&lingering_total);
}

static void region_linger(struct actmem_region *region)
{
	mutex_lock(&lingering_lock);
	actmem_slots_linger(region);
	atomic_long_inc(&lingering_total);
	/* The caller has one, of the device's file or of the superblock. */
	__module_get(THIS_MODULE);
	list_add_tail(&region->linger, &lingering_regions);
	schedule_delayed_work(&sweeper, SWEEP_INTERVAL);
	mutex_unlock(&lingering_lock);
}

static void region_end(struct actmem_region *region)
{
	xa_erase(&regions, region->id);
	actmem_user_detach(region);
	atomic_long_dec(&region_total);
	actmem_region_put(region);
}

/* Ends a region that has no inode any more, and takes over its reference. */
void actmem_region_retire(struct actmem_region *region)
{
	/* Twice, as GUP-fast takes references that last for an instant. */
	if (actmem_slots_give_back(region) || actmem_slots_give_back(region))
		region_end(region);
	else
		region_linger(region);
}

/* Whether there was any to look at, and the task has not been killed. */
bool actmem_regions_sweep(void)
{
	struct actmem_region *region, *next;

	if (!actmem_lingering_regions_total())
		return false;
	if (mutex_lock_killable(&lingering_lock))
		return false;
	list_for_each_entry_safe(region, next, &lingering_regions, linger) {
		if (fatal_signal_pending(current))
			break;
		if (!actmem_slots_give_back_lingering(region))
			continue;
		list_del(&region->linger);
		region_end(region);
		atomic_long_dec_return_release(&lingering_total);
		module_put(THIS_MODULE);
	}
	if (!list_empty(&lingering_regions))
		schedule_delayed_work(&sweeper, SWEEP_INTERVAL);
	mutex_unlock(&lingering_lock);
	return !fatal_signal_pending(current);
}

/* The module goes: no region is left, but the sweeper may still be returning. */
void actmem_regions_exit(void)
{
	cancel_delayed_work_sync(&sweeper);
	xa_destroy(&regions);
}

static struct actmem_region *region_alloc(const struct actmem_ioctl_create *arg,
					  struct actmem_mount *mount)
{
	struct actmem_region *region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);

	if (!region)
		return NULL;
	region->node_pages_held = kcalloc(nr_node_ids, sizeof(*region->node_pages_held),
					  GFP_KERNEL_ACCOUNT);
	if (!region->node_pages_held) {
		kfree(region);
		return NULL;
	}
	kref_init(&region->ref);
	spin_lock_init(&region->lock);
	mutex_init(&region->unmap_lock);
	INIT_LIST_HEAD(&region->lingering_pages);
	region->flags = arg->flags;
	region->policy = arg->policy;
	if (mount) {
		kref_get(&mount->ref);
		region->mount = mount;
	}
	region->page_count = arg->length / ACTMEM_PAGE_BYTES;
	region->owner = current_euid();
	region->pid = get_pid(task_tgid(current));
	strscpy(region->name, arg->name, sizeof(region->name));
	return region;
}

/*
 * A region without pages and without an inode, that everybody can find; of a
 * mount, or of none. The reasons for a failure are told in @arg.
 */
struct actmem_region *actmem_region_create(struct actmem_ioctl_create *arg,
					   struct actmem_mount *mount)
{
	struct actmem_region *region;
	int err;

	region = region_alloc(arg, mount);
	if (!region)
		return ERR_PTR(-ENOMEM);
	/* Fails at once what could never be populated, and an absurdly long table with it. */
	err = actmem_place_check(region, arg);
	if (err)
		goto put;
	region->folios = kvcalloc(region->page_count, sizeof(*region->folios),
				  GFP_KERNEL_ACCOUNT);
	if (!region->folios) {
		err = -ENOMEM;
		goto put;
	}
	err = actmem_dmem_region_init(region) ?: actmem_user_attach(region);
	if (err)
		goto put;
	region->id = atomic64_inc_return(&last_id);
	err = xa_insert(&regions, region->id, region, GFP_KERNEL_ACCOUNT);
	if (err)
		goto detach;
	atomic_long_inc(&region_total);
	return region;

detach:
	actmem_user_detach(region);
put:
	trace_actmem_alloc_fail(region, err, &arg->why);
	actmem_region_put(region);
	return ERR_PTR(err);
}
