// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a region: live (it has an inode), then lingering for as long as
 * somebody outside still pins pages of it, then freed.
 *
 * Nobody tells the driver when a pin goes, so lingering regions are swept: by
 * a worker, and whenever somebody asks. Every page goes by the same gate: its
 * reference count is frozen at one, ours, before it is given back.
 */
#include <linux/cred.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched/user.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "actmem.h"
#include "compat/compat.h"

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

	if (region->charged)
		free_uid(region->charged);
	put_pid(region->pid);
	kvfree(region->folios);
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

/* Makes the region visible. Its place in the table has been reserved. */
static void publish(struct actmem_region *region)
{
	void *old = xa_store(&regions, region->id, region, GFP_KERNEL);

	WARN_ON_ONCE(xa_is_err(old));
	actmem_count_region(1);
}

static void give_page_back(struct actmem_region *region, unsigned long index)
{
	struct folio *folio = region->folios[index];
	int node = folio_nid(folio);

	region->folios[index] = NULL;
	region->pages_held--;
	region->node_pages_held[node]--;
	actmem_count_pages(node, -1);
	if (region->lingering)
		actmem_count_lingering_pages(node, -1);
	actmem_uncharge(region, 1);
	actmem_pool_give(folio);
}

/* Gives back every page that nobody else holds; true if that was all of them. */
static bool give_pages_back(struct actmem_region *region)
{
	unsigned long i;
	bool done;

	mutex_lock(&region->lock);
	for (i = 0; i < region->page_count && region->pages_held; i++) {
		struct folio *folio = region->folios[i];

		if (folio && folio_ref_freeze(folio, 1)) {
			folio_ref_unfreeze(folio, 1);
			give_page_back(region, i);
		}
		cond_resched();
	}
	done = !region->pages_held;
	mutex_unlock(&region->lock);
	return done;
}

static void begin_to_linger(struct actmem_region *region)
{
	int node;

	mutex_lock(&lingering_lock);
	mutex_lock(&region->lock);
	region->lingering = true;
	for_each_node(node)
		actmem_count_lingering_pages(node, region->node_pages_held[node]);
	mutex_unlock(&region->lock);
	actmem_count_lingering_region(1);
	/* The caller has one, of the device's file or of the superblock. */
	__module_get(THIS_MODULE);
	list_add_tail(&region->linger, &lingering_regions);
	schedule_delayed_work(&sweeper, SWEEP_INTERVAL);
	mutex_unlock(&lingering_lock);
}

static void end_region(struct actmem_region *region)
{
	xa_erase(&regions, region->id);
	actmem_count_region(-1);
	actmem_region_put(region);
}

/* Ends a region that has no inode any more, and takes over its reference. */
void actmem_region_retire(struct actmem_region *region)
{
	/* Twice, as GUP-fast takes references that last for an instant. */
	if (give_pages_back(region) || give_pages_back(region))
		end_region(region);
	else
		begin_to_linger(region);
}

void actmem_regions_sweep(void)
{
	struct actmem_region *region, *next;

	mutex_lock(&lingering_lock);
	list_for_each_entry_safe(region, next, &lingering_regions, linger) {
		if (!give_pages_back(region))
			continue;
		list_del(&region->linger);
		actmem_count_lingering_region(-1);
		end_region(region);
		module_put(THIS_MODULE);
	}
	if (!list_empty(&lingering_regions))
		schedule_delayed_work(&sweeper, SWEEP_INTERVAL);
	mutex_unlock(&lingering_lock);
}

/* The module goes: no region is left, but the sweeper may still be returning. */
void actmem_regions_exit(void)
{
	cancel_delayed_work_sync(&sweeper);
	xa_destroy(&regions);
}

static struct actmem_region *region_alloc(const struct actmem_ioctl_create *arg)
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
	mutex_init(&region->lock);
	region->flags = arg->flags;
	region->policy = arg->policy;
	region->page_count = arg->length / ACTMEM_PAGE_BYTES;
	region->owner = current_euid();
	region->pid = get_pid(task_tgid(current));
	strscpy(region->name, arg->name, sizeof(region->name));
	return region;
}

/*
 * All that a region needs but its inode. The reasons for a failure are told
 * in @arg.
 */
struct actmem_region *actmem_region_create(struct actmem_ioctl_create *arg)
{
	struct actmem_region *region;
	int err;

	region = region_alloc(arg);
	if (!region)
		return ERR_PTR(-ENOMEM);
	err = actmem_place_check(region, arg);
	if (err)
		goto put;
	err = actmem_charge(region, arg);
	if (err)
		goto put;
	region->id = atomic64_inc_return(&last_id);
	err = xa_reserve(&regions, region->id, GFP_KERNEL_ACCOUNT);
	if (err)
		goto uncharge;

	err = actmem_place(region, arg);
	if (err && !region->pages_held)
		goto release_id;
	/* What was not placed was charged all the same. */
	if (err)
		actmem_uncharge(region, region->page_count - region->pages_held);
	publish(region);
	if (err) {
		actmem_region_retire(region);
		return ERR_PTR(err);
	}
	return region;

release_id:
	xa_release(&regions, region->id);
uncharge:
	actmem_uncharge(region, region->page_count);
put:
	actmem_region_put(region);
	return ERR_PTR(err);
}

/*
 * Counts are read one after the other while others map and unmap, so that
 * they are taken again until they hold still.
 */
static void folio_usage(struct folio *folio, struct actmem_usage *usage)
{
	int references, mappings, tries = 4;

	do {
		references = folio_ref_count(folio);
		smp_rmb();	/* the second reading of both comes after the first */
		mappings = actmem_folio_mapcount(folio);
		smp_rmb();	/* as above */
	} while (references != folio_ref_count(folio) && --tries);

	if (mappings > 0)
		usage->mapped_pages++;
	/* One reference is ours, and each mapping has one. */
	if (references > 1 + mappings)
		usage->pinned_pages++;
}

void actmem_region_usage(struct actmem_region *region, struct actmem_usage *usage)
{
	unsigned long i;

	memset(usage, 0, sizeof(*usage));
	mutex_lock(&region->lock);
	for (i = 0; i < region->page_count; i++) {
		if (region->folios[i])
			folio_usage(region->folios[i], usage);
		cond_resched();
	}
	mutex_unlock(&region->lock);
}
