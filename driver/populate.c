// SPDX-License-Identifier: GPL-2.0
/*
 * Allocates the pages of a region, and fills the region's slots with them (slots.c). The task that
 * calls POPULATE fills a range page by page. A task that touches a missing page fills the slot of
 * that page.
 */
#include <linux/sched/signal.h>

#include "actmem.h"
#include "trace.h"

/*
 * Allocates the page of an empty slot. Returns EBUSY if the slot has a page or is claimed. The
 * claim makes other tasks wait for the page. Without the claim, other tasks would try to allocate
 * the same page, and could fail at a limit although this task gets the page.
 *
 * Returns EPERM to a kernel thread, which touches the page for a device (such as RDMA with
 * on-demand paging). A kernel thread has neither the cgroups nor the cpuset of the region's user,
 * so the page would escape their limits.
 */
static int populate_slot(struct actmem_region *region, unsigned long index,
			 struct actmem_choice *choice, struct actmem_why *why)
{
	struct folio *folio;
	int err;

	err = actmem_slot_claim(region, index);
	if (err)
		return err;
	err = current->flags & PF_KTHREAD ? -EPERM : actmem_account_charge(region, why);
	folio = err ? ERR_PTR(err) : actmem_place_page(region, index, choice, why);
	if (!err && IS_ERR(folio))
		actmem_account_uncharge(region);
	actmem_slot_fill(region, index, folio);
	return PTR_ERR_OR_ZERO(folio);
}

static int populate_range_fill(struct actmem_region *region, unsigned long first,
			       unsigned long count, struct actmem_choice *choice,
			       unsigned long *done, struct actmem_why *why)
{
	int err;

	for (; *done < count; ++*done) {
		unsigned long index = first + *done;

		cond_resched();
		while (actmem_slot_is_missing(region, index)) {
			if (fatal_signal_pending(current))
				return -EINTR;
			err = populate_slot(region, index, choice, why);
			if (err == -EBUSY)
				err = actmem_slot_wait(region, index);
			if (err)
				return err;
		}
		if (actmem_slot_is_poisoned(region, index)) {
			actmem_poison_explain(region, index, why);
			return -EIO;
		}
	}
	return 0;
}

/*
 * Fills a range. Fails early if a limit is too low. The check assumes that all pages that the
 * region has, or is about to get, are in the range. If some of these pages are outside the range,
 * the call can fail later, at the first page that exceeds a limit.
 */
static int populate_range(struct actmem_region *region, unsigned long first, unsigned long count,
			  unsigned long *done, struct actmem_why *why)
{
	struct actmem_choice choice;
	int err;

	for (; *done < count; ++*done) {
		if (actmem_slot_is_missing(region, first + *done) ||
		    actmem_slot_is_poisoned(region, first + *done))
			break;
		cond_resched();
	}
	if (*done == count)
		return 0;
	actmem_place_choose(region, actmem_slots_missing(region, first, count), &choice);
	err = actmem_place_check_limits(region, &choice, count, why);
	if (!err)
		err = actmem_account_check(region, count, why);
	return err ?: populate_range_fill(region, first, count, &choice, done, why);
}

/*
 * If @err means that memory ran out or that a limit is reached, checks the lingering regions, which
 * are closed, but pinned. The check may free pages. Returns true if the caller should try again.
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

/*
 * Allocates the missing pages, zeroed. After the call, the first *@done pages of the range are
 * present.
 */
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
 * Returns the page with a reference for the caller, and allocates the page if it is missing.
 * Returns EHWPOISON if the hardware reported an error in the page, or EBUSY if another task is
 * allocating it.
 */
struct folio *actmem_populate_demand(struct actmem_region *region, unsigned long index,
				     struct actmem_why *why)
{
	struct folio *folio;
	int err;

	while (!(folio = actmem_slot_get(region, index))) {
		err = populate_one_slot(region, index, why);
		if (populate_sweep(err, why))
			err = populate_one_slot(region, index, why);
		if (err && err != -EBUSY)
			trace_actmem_alloc_fail(region, err, why);
		if (err)
			return ERR_PTR(err);
		spin_lock(&region->lock);
		region->demand_faults++;
		spin_unlock(&region->lock);
	}
	if (IS_ERR(folio))
		actmem_poison_explain(region, index, why);
	return folio;
}
