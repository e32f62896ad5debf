// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a region: live (it has an inode), then lingering for as long as
 * somebody outside still pins pages of it, then freed.
 *
 * Nobody tells the driver when a pin goes, so lingering regions are swept: by
 * a worker, and whenever somebody asks.
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
#include "import.h"
#include "trace.h"

#define SWEEP_INTERVAL	HZ

static DEFINE_XARRAY(regions);
static atomic64_t last_id;

/* Protects the list; taken before the lock of a region. */
static DEFINE_MUTEX(lingering_lock);
static LIST_HEAD(lingering_regions);

static void sweep_work(struct work_struct *work)
{
	actmem_regions_sweep();
}

static DECLARE_DELAYED_WORK(sweeper, sweep_work);

static void region_free(struct kref *ref)
{
	struct actmem_region *region = container_of(ref, struct actmem_region, ref);

	if (region->mount)
		actmem_mount_put(region->mount);
	put_pid(region->pid);
	actmem_import_free(region);
	kvfree(region->folios);
	kfree(region->node_small_pages);
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

static void begin_to_linger(struct actmem_region *region)
{
	mutex_lock(&lingering_lock);
	spin_lock(&region->lock);
	actmem_count_as_lingering(region);
	spin_unlock(&region->lock);
	actmem_count_lingering_region(1);
	/* The caller has one, of the device's file or of the superblock. */
	__module_get(THIS_MODULE);
	list_add_tail(&region->linger, &lingering_regions);
	schedule_delayed_work(&sweeper, SWEEP_INTERVAL);
	mutex_unlock(&lingering_lock);
}

static void end_region(struct actmem_region *region)
{
	trace_actmem_region_free(region);
	xa_erase(&regions, region->id);
	actmem_user_detach(region);
	actmem_count_region(-1);
	actmem_region_put(region);
}

/* Ends a region that has no inode any more, and takes over its reference. */
void actmem_region_retire(struct actmem_region *region)
{
	unsigned long pages = READ_ONCE(region->pages_held);
	/* Twice, as GUP-fast takes references that last for an instant. */
	bool all_given_back = actmem_slots_give_back(region) || actmem_slots_give_back(region);

	trace_actmem_region_retire(region, pages);
	if (all_given_back)
		end_region(region);
	else
		begin_to_linger(region);
}

/* EINTR if the task is killed while it waits, or before all of them are looked at. */
int actmem_regions_sweep(void)
{
	struct actmem_region *region, *next;
	int err = 0;

	if (!actmem_lingering_regions_total())
		return 0;
	/* As the workers that look for pages with errors have one for an instant. */
	actmem_poison_settle();
	if (mutex_lock_killable(&lingering_lock))
		return -EINTR;
	list_for_each_entry_safe(region, next, &lingering_regions, linger) {
		if (fatal_signal_pending(current)) {
			err = -EINTR;
			break;
		}
		if (!actmem_slots_give_back(region))
			continue;
		list_del(&region->linger);
		end_region(region);
		actmem_count_lingering_region(-1);
		module_put(THIS_MODULE);
	}
	if (!list_empty(&lingering_regions))
		schedule_delayed_work(&sweeper, SWEEP_INTERVAL);
	mutex_unlock(&lingering_lock);
	return err;
}

/* The module goes: no region is left, but the sweeper may still be returning. */
void actmem_regions_exit(void)
{
	cancel_delayed_work_sync(&sweeper);
	xa_destroy(&regions);
}

static struct actmem_region *region_alloc(u32 flags, u32 policy, u64 length, const char *name,
					  struct actmem_mount *mount)
{
	struct actmem_region *region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);

	if (!region)
		return NULL;
	region->node_small_pages = kcalloc(nr_node_ids, sizeof(*region->node_small_pages),
					   GFP_KERNEL_ACCOUNT);
	if (!region->node_small_pages) {
		kfree(region);
		return NULL;
	}
	kref_init(&region->ref);
	spin_lock_init(&region->lock);
	mutex_init(&region->reserve_lock);
	mutex_init(&region->unmap_lock);
	INIT_LIST_HEAD(&region->poisoned);
	region->flags = flags;
	region->policy = policy;
	if (mount)
		region->mount = actmem_mount_get(mount);
	region->page_count = length / ACTMEM_PAGE_BYTES;
	region->kept_end = region->page_count;
	region->owner = current_euid();
	region->pid = get_pid(task_tgid(current));
	strscpy(region->name, name, sizeof(region->name));
	return region;
}

/* Fails at once what could never be populated, and an absurdly long table with it. */
static int check_capacity(const struct actmem_region *region, struct actmem_why *why)
{
	struct actmem_choice *choice;
	struct actmem_caller caller;
	int err;

	actmem_caller_init(&caller);
	choice = actmem_choose(region, &caller, region->page_count);
	if (!choice)
		return -ENOMEM;
	err = actmem_place_capacity(region, choice, why);
	kfree(choice);
	return err;
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

	region = region_alloc(arg->flags, arg->policy, arg->length, arg->name, mount);
	if (!region)
		return ERR_PTR(-ENOMEM);
	err = actmem_place_check(region, arg);
	if (err)
		goto put;
	err = check_capacity(region, &arg->why);
	if (err)
		goto put;
	region->folios = kvcalloc(region->page_count, sizeof(*region->folios),
				  GFP_KERNEL_ACCOUNT);
	if (!region->folios) {
		err = -ENOMEM;
		goto put;
	}
	err = actmem_user_attach(region);
	if (err)
		goto put;
	region->id = atomic64_inc_return(&last_id);
	err = xa_insert(&regions, region->id, region, GFP_KERNEL_ACCOUNT);
	if (err)
		goto detach;
	actmem_count_region(1);
	return region;

detach:
	actmem_user_detach(region);
put:
	actmem_alloc_failed(region, err, &arg->why);
	actmem_region_put(region);
	return ERR_PTR(err);
}

/*
 * A region of memory that others made, without an inode. The reasons for a
 * failure are told in @arg.
 */
struct actmem_region *actmem_region_import(struct actmem_ioctl_import *arg, struct file *memory)
{
	struct actmem_region *region;
	bool charged;
	int err;

	err = actmem_import_check(memory, arg->offset, arg->length, &arg->why);
	if (err)
		return ERR_PTR(err);
	region = region_alloc(arg->flags, ACTMEM_POLICY_BIND, arg->length, arg->name, NULL);
	if (!region)
		return ERR_PTR(-ENOMEM);
	err = actmem_user_attach(region);
	if (err)
		goto put;
	err = actmem_reserve(region, region->page_count, &charged, &arg->why);
	if (err)
		goto detach;
	region->id = atomic64_inc_return(&last_id);
	err = xa_reserve(&regions, region->id, GFP_KERNEL_ACCOUNT);
	if (err)
		goto unreserve;
	err = actmem_import(region, memory, arg->offset, &arg->why);
	if (err)
		goto release;
	actmem_keep_reserved(region, region->page_count, charged);
	/* Needs no memory. */
	xa_store(&regions, region->id, region, GFP_KERNEL_ACCOUNT);
	actmem_count_region(1);
	return region;

release:
	xa_release(&regions, region->id);
unreserve:
	actmem_unreserve(region, region->page_count, charged);
detach:
	actmem_user_detach(region);
put:
	actmem_alloc_failed(region, err, &arg->why);
	actmem_region_put(region);
	return ERR_PTR(err);
}
