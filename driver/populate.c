// SPDX-License-Identifier: GPL-2.0
/*
 * Filling slots of a region with pages: many at once, by several CPUs, or the
 * one that is touched. What can be had without reclaim is taken first; where
 * that does not suffice, page by page, with reclaim and on the next node.
 */
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "actmem.h"
#include "import.h"

#define MAKER_BITS	8

/*
 * Who makes a page for a slot holds the one of it: what only one of them can
 * have, such as the last page under a limit, is not refused to the others.
 */
static struct mutex makers[BIT(MAKER_BITS)];

void actmem_populate_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(makers); i++)
		mutex_init(&makers[i]);
}

static struct mutex *maker_of(const struct actmem_region *region, unsigned long index)
{
	return &makers[hash_long(hash_long(region->id, BITS_PER_LONG) + index, MAKER_BITS)];
}

/* How many pages are there, up to the first that is missing or has erred. */
static unsigned long count_present(struct actmem_region *region, unsigned long first,
				   unsigned long count)
{
	unsigned long i;

	for (i = 0; i < count && !actmem_slot_is_missing(region, first + i) &&
	     !actmem_slot_is_poisoned(region, first + i); i++)
		cond_resched();
	return i;
}

/**
 * struct filling - slots to fill, for all who are at it
 * @region: whose slots
 * @choice: where their pages come from
 * @caller: on whose behalf
 * @first: index of the first slot
 * @stride: distance between one and the next
 */
struct filling {
	struct actmem_region *region;
	struct actmem_choice *choice;
	struct actmem_caller caller;
	unsigned long first;
	unsigned int stride;
};

static bool take_spare(struct actmem_region *region, bool *charged)
{
	*charged = atomic_long_dec_if_positive(&region->spare[true]) >= 0;
	return *charged || atomic_long_dec_if_positive(&region->spare[false]) >= 0;
}

/* A page may be touched that is being populated, and have been discarded since. */
static int reserve_one(struct actmem_region *region, bool *charged, struct actmem_why *why)
{
	int err;

	if (take_spare(region, charged))
		return 0;
	err = actmem_reserve(region, 1, charged, why);
	if (!err)
		return 0;
	/*
	 * Who populates may have reserved all that there was a moment ago, or be about to
	 * give it back: both are done with the lock.
	 */
	actmem_no_reason(why);
	mutex_lock(&region->reserve_lock);
	err = take_spare(region, charged) ? 0 : actmem_reserve(region, 1, charged, why);
	mutex_unlock(&region->reserve_lock);
	return err;
}

/* It stays with who populates, if anybody does: charged as it was. */
static void unreserve_one(struct actmem_region *region, bool charged)
{
	mutex_lock(&region->reserve_lock);
	if (region->reservers)
		atomic_long_inc(&region->spare[charged]);
	else
		actmem_unreserve(region, 1, charged);
	mutex_unlock(&region->reserve_lock);
}

/* Makes a page for a slot that has none, unless there is no more room for it. */
static int make_missing(struct filling *filling, unsigned long index, enum actmem_effort effort,
			struct actmem_why *why)
{
	struct actmem_region *region = filling->region;
	struct folio *folio;
	bool charged;
	int err;

	err = reserve_one(region, &charged, why);
	if (err)
		return err;
	folio = actmem_place_page(region, index, filling->choice, &filling->caller, effort, why);
	if (IS_ERR(folio)) {
		unreserve_one(region, charged);
		return PTR_ERR(folio);
	}
	actmem_keep_reserved(region, 1, charged);
	actmem_slot_fill(region, index, folio);
	return 1;
}

/* Makes a page for the slot: 1, or 0 if it has one by now. */
static int make_page(struct filling *filling, unsigned long index, enum actmem_effort effort,
		     struct actmem_why *why)
{
	struct mutex *maker = maker_of(filling->region, index);
	int made = 0;

	if (mutex_lock_killable(maker))
		return -EINTR;
	if (actmem_slot_is_missing(filling->region, index))
		made = make_missing(filling, index, effort, why);
	mutex_unlock(maker);
	return made;
}

/* Makes a page for the slot if it has none, without reclaim; the reason does not matter. */
static int make_page_at_ease(struct filling *filling, unsigned long item,
			     enum actmem_effort effort)
{
	unsigned long index = filling->first + item * filling->stride;
	int err = actmem_caller_stopped(&filling->caller);
	struct actmem_why why;

	if (!err && actmem_slot_is_missing(filling->region, index))
		err = make_page(filling, index, effort, &why);
	return min(err, 0);
}

static int make_free_page(void *context, unsigned long item)
{
	return make_page_at_ease(context, item, ACTMEM_FREE);
}

/* What can be had without reclaim: ready pages first, then free ones by several CPUs. */
static void fill_at_ease(struct filling *filling, unsigned long first, unsigned long count)
{
	unsigned int stride = actmem_place_stride(filling->region, filling->choice);
	unsigned long i, items, item;

	filling->stride = stride;
	for (i = 0; i < min_t(unsigned long, stride, count); i++) {
		filling->first = first + i;
		items = DIV_ROUND_UP(count - i, stride);
		for (item = 0; item < items; item++) {
			if (make_page_at_ease(filling, item, ACTMEM_READY))
				break;
			cond_resched();
		}
		filling->first += item * stride;
		actmem_parallel(actmem_place_node(filling->region, first + i, filling->choice),
				items - item, make_free_page, filling);
	}
}

/* The first @done slots have their pages in the end, also when it fails. */
static int fill_slots(struct filling *filling, unsigned long first, unsigned long count,
		      unsigned long *done, struct actmem_why *why)
{
	unsigned int current_node;
	bool at_ease = true;
	int err;

	for (; *done < count; ++*done) {
		cond_resched();
		if (at_ease)
			fill_at_ease(filling, first + *done, count - *done);
		at_ease = false;
		if (actmem_slot_is_poisoned(filling->region, first + *done)) {
			actmem_poison_explain(filling->region, first + *done, why);
			return -EIO;
		}
		if (!actmem_slot_is_missing(filling->region, first + *done))
			continue;
		err = actmem_caller_stopped(&filling->caller);
		if (err)
			return err;
		current_node = actmem_place_current(filling->choice);
		err = make_page(filling, first + *done, ACTMEM_RECLAIM, why);
		if (err < 0)
			return err;
		/* Another node may have many that are free. */
		at_ease = actmem_place_current(filling->choice) != current_node;
	}
	return 0;
}

static int begin_to_fill(struct filling *filling, struct actmem_region *region,
			 const struct actmem_caller *caller, unsigned long wanted)
{
	filling->region = region;
	filling->choice = actmem_choose(region, caller, wanted);
	if (!filling->choice)
		return -ENOMEM;
	filling->caller = *caller;
	return 0;
}

/* The pages that are missing, but for those that somebody is about to make. */
static unsigned long count_wanted(const struct actmem_region *region, unsigned long first,
				  unsigned long count)
{
	/* In this order: what is made meanwhile is not missing, but still underway. */
	unsigned long underway = actmem_underway(region);
	unsigned long missing = actmem_slots_missing(region, first, count);

	return missing - min(missing, underway);
}

/*
 * Who touches a page counts against its node's limit while he makes it, and may have
 * begun since what is wanted was counted: less will do then.
 */
static int check_node_limits(const struct filling *filling, unsigned long first,
			     unsigned long count, struct actmem_why *why)
{
	unsigned long tried, pages = ULONG_MAX;
	int err;

	do {
		tried = pages;
		actmem_no_reason(why);
		pages = count_wanted(filling->region, first, count);
		err = actmem_place_limits(filling->region, filling->choice, pages, why);
	} while (err && pages < tried);
	return err;
}

/*
 * Reserves for the pages that are wanted. What is reserved is there for everybody
 * who makes a page, and goes when the last one is done who has reserved.
 */
static int begin_to_reserve(struct actmem_region *region, unsigned long first,
			    unsigned long count, struct actmem_why *why)
{
	unsigned long tried, pages = ULONG_MAX;
	bool charged;
	int err;

	mutex_lock(&region->reserve_lock);
	do {
		tried = pages;
		actmem_no_reason(why);
		pages = count_wanted(region, first, count);
		err = pages ? actmem_reserve(region, pages, &charged, why) : 0;
		/* Who touches a page may have reserved it since: fewer will do then. */
	} while (err && pages < tried);
	if (!err && pages)
		atomic_long_add(pages, &region->spare[charged]);
	region->reservers += !err;
	mutex_unlock(&region->reserve_lock);
	return err;
}

static void end_reserving(struct actmem_region *region)
{
	int charged;

	mutex_lock(&region->reserve_lock);
	region->reservers--;
	for (charged = 0; charged < 2 && !region->reservers; charged++)
		actmem_unreserve(region, atomic_long_xchg(&region->spare[charged], 0), charged);
	mutex_unlock(&region->reserve_lock);
}

static int populate(struct actmem_region *region, unsigned long first, unsigned long count,
		    const struct actmem_caller *caller, unsigned long *done, struct actmem_why *why)
{
	struct filling filling;
	unsigned long missing;
	int err;

	*done = count_present(region, first, count);
	missing = actmem_slots_missing(region, first + *done, count - *done);
	err = begin_to_fill(&filling, region, caller, missing);
	if (err)
		return err;
	err = check_node_limits(&filling, first + *done, count - *done, why);
	if (!err)
		err = begin_to_reserve(region, first + *done, count - *done, why);
	if (!err) {
		actmem_caller_share(&filling.caller);
		err = fill_slots(&filling, first, count, done, why);
		actmem_caller_unshare(&filling.caller);
		end_reserving(region);
	}
	kfree(filling.choice);
	return err;
}

/* Allocates, zeroes and places what is missing; the first @done pages are there. */
int actmem_populate(struct actmem_region *region, unsigned long first, unsigned long count,
		    const struct actmem_caller *caller, unsigned long *done, struct actmem_why *why)
{
	int err;

	*done = region->import ? count : 0;
	if (region->import)
		return 0;
	/* What has been let go of by now is not to count against the limits. */
	err = actmem_regions_sweep();
	if (!err)
		err = populate(region, first, count, caller, done, why);
	actmem_alloc_failed(region, err, why);
	return err;
}

static int demand(struct actmem_region *region, unsigned long index,
		  const struct actmem_caller *caller, struct actmem_why *why)
{
	struct filling filling;
	int made;

	made = begin_to_fill(&filling, region, caller, 1);
	if (made)
		return made;
	made = make_page(&filling, index, ACTMEM_RECLAIM, why);
	if (made < 0 && actmem_lingering_regions_total()) {
		/* As what has been let go of by now is not to count. */
		actmem_no_reason(why);
		made = actmem_regions_sweep();
		if (!made)
			made = make_page(&filling, index, ACTMEM_RECLAIM, why);
	}
	kfree(filling.choice);
	if (made > 0) {
		spin_lock(&region->lock);
		region->demand_faults++;
		spin_unlock(&region->lock);
	}
	return made;
}

/*
 * The page with a reference for the caller; it is allocated if it is missing. EHWPOISON
 * if the hardware has erred in it.
 */
struct folio *actmem_slot_demand(struct actmem_region *region, unsigned long index,
				 const struct actmem_caller *caller, struct actmem_why *why)
{
	struct folio *folio;
	int err;

	while (!(folio = actmem_slot_get(region, index))) {
		err = demand(region, index, caller, why);
		if (err < 0) {
			actmem_alloc_failed(region, err, why);
			return ERR_PTR(err);
		}
	}
	if (IS_ERR(folio))
		actmem_poison_explain(region, index, why);
	return folio;
}

/* As actmem_extent_get(), but what is missing is allocated. */
int actmem_extent_demand(struct actmem_region *region, u64 offset,
			 const struct actmem_caller *caller, struct actmem_why *why,
			 struct actmem_extent *extent)
{
	if (region->import)
		return actmem_import_extent(region, offset, extent);
	return actmem_extent_of_slot(actmem_slot_demand(region, offset / ACTMEM_PAGE_BYTES, caller,
							why), offset, extent);
}
