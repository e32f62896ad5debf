// SPDX-License-Identifier: GPL-2.0
/*
 * Filling the slots of a region with pages. The task that calls POPULATE fills a range
 * page by page. A task that touches a missing page fills its slot.
 */
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>

#include "actmem.h"
#include "trace.h"

#define MAKER_BITS	8

/*
 * Serializes tasks that allocate the page of the same slot. Otherwise the second task
 * could fail for lack of a page (such as the last one under a limit) that the first
 * task is just getting for both.
 */
static struct mutex makers[BIT(MAKER_BITS)];

void actmem_populate_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(makers); i++)
		mutex_init(&makers[i]);
}

static struct mutex *populate_slot_maker(const struct actmem_region *region, unsigned long index)
{
	return &makers[hash_long(hash_long(region->id, BITS_PER_LONG) + index, MAKER_BITS)];
}

static int populate_slot_locked(struct actmem_region *region, unsigned long index,
				struct actmem_choice *choice, struct actmem_why *why)
{
	struct folio *folio;
	int err;

	err = actmem_account_charge(region, why);
	if (err)
		return err;
	folio = actmem_place_page(region, index, choice, why);
	if (IS_ERR(folio)) {
		actmem_account_uncharge(region);
		return PTR_ERR(folio);
	}
	actmem_slot_fill(region, index, folio);
	return 1;
}

/* Allocates the page of the slot. Returns 1, or 0 if another task has filled the slot. */
static int populate_slot(struct actmem_region *region, unsigned long index,
			 struct actmem_choice *choice, struct actmem_why *why)
{
	struct mutex *maker = populate_slot_maker(region, index);
	int made = 0;

	if (mutex_lock_killable(maker))
		return -EINTR;
	if (actmem_slot_is_missing(region, index))
		made = populate_slot_locked(region, index, choice, why);
	mutex_unlock(maker);
	return made;
}

static int populate_range_fill(struct actmem_region *region, unsigned long first,
			       unsigned long count, struct actmem_choice *choice,
			       unsigned long *done, struct actmem_why *why)
{
	int err;

	for (; *done < count; ++*done) {
		unsigned long index = first + *done;

		cond_resched();
		if (actmem_slot_is_poisoned(region, index)) {
			actmem_poison_explain(region, index, why);
			return -EIO;
		}
		if (!actmem_slot_is_missing(region, index))
			continue;
		if (fatal_signal_pending(current))
			return -EINTR;
		err = populate_slot(region, index, choice, why);
		if (err < 0)
			return err;
	}
	return 0;
}

static bool populate_slot_is_present(struct actmem_region *region, unsigned long index)
{
	return !actmem_slot_is_missing(region, index) && !actmem_slot_is_poisoned(region, index);
}

/*
 * Fails early if a limit is too low. The check assumes that all pages that the region
 * has, or is about to get, are in the range. If they are not, the call fails later, at
 * the first page that exceeds a limit.
 */
static int populate_range(struct actmem_region *region, unsigned long first, unsigned long count,
			  unsigned long *done, struct actmem_why *why)
{
	struct actmem_choice choice;
	int err;

	for (; *done < count && populate_slot_is_present(region, first + *done); ++*done)
		cond_resched();
	if (*done == count)
		return 0;
	actmem_place_choose(region, actmem_slots_missing(region, first, count), &choice);
	err = actmem_place_check_limits(region, &choice, count, why);
	if (!err)
		err = actmem_account_check(region, count, why);
	return err ?: populate_range_fill(region, first, count, &choice, done, why);
}

/*
 * Returns true if the failed call is worth another try, because lingering regions were
 * checked.
 */
static bool populate_sweep(int err, struct actmem_why *why)
{
	if (err != -ENOMEM && err != -EDQUOT && err != -ENOSPC)
		return false;
	if (!actmem_regions_sweep())
		return false;
	actmem_why_clear(why);
	return true;
}

/* Allocates, zeroes and places the missing pages. The first @done pages are present. */
int actmem_populate(struct actmem_region *region, unsigned long first, unsigned long count,
		    unsigned long *done, struct actmem_why *why)
{
	int err;

	*done = 0;
	err = populate_range(region, first, count, done, why);
	if (populate_sweep(err, why))
		err = populate_range(region, first, count, done, why);
	if (err)
		trace_actmem_alloc_fail(region, err, why);
	return err;
}

static int populate_one_slot(struct actmem_region *region, unsigned long index,
			     struct actmem_why *why)
{
	struct actmem_choice choice;

	actmem_place_choose(region, 1, &choice);
	return populate_slot(region, index, &choice, why);
}

/*
 * Returns the page with a reference for the caller, and allocates it if it is missing.
 * Returns EHWPOISON if the hardware reported an error in it.
 */
struct folio *actmem_populate_demand(struct actmem_region *region, unsigned long index,
				     struct actmem_why *why)
{
	struct folio *folio;
	int made;

	while (!(folio = actmem_slot_get(region, index))) {
		made = populate_one_slot(region, index, why);
		if (populate_sweep(made, why))
			made = populate_one_slot(region, index, why);
		if (made < 0) {
			trace_actmem_alloc_fail(region, made, why);
			return ERR_PTR(made);
		}
		spin_lock(&region->lock);
		region->demand_faults += made;
		spin_unlock(&region->lock);
	}
	if (IS_ERR(folio))
		actmem_poison_explain(region, index, why);
	return folio;
}
