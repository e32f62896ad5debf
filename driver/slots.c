// SPDX-License-Identifier: GPL-2.0
/*
 * The pages of a region: look up, enter, give back.
 *
 * A slot is empty, claimed by a task that allocates its page, or has a page with two
 * references of the driver. A task that finds a slot claimed waits on its own region.
 *
 * Every page leaves its slot through one gate. Lookups read the slot and take a reference under the
 * region's lock. Under the same lock, the gate freezes the reference count at the
 * driver's own references. If the freeze succeeds, no other code has the page or can
 * get it. If it fails, other code has a reference, and the page stays. This also covers
 * stale TLB entries, because the kernel drops a mapping's reference only after the
 * flush.
 *
 * One user of a page may have no reference. A fault hands its reference over to the
 * mapping, which may be gone before the fault unlocks the page. The gate therefore
 * leaves a locked page in its slot, too.
 *
 * A page in which the hardware reported an error stays in its slot until it leaves
 * through the gate, as any other page does. Lookups do not return it any more.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "actmem.h"
#include "compat/compat.h"

/* The entry of a claimed slot. For lookups, the slot is empty. */
#define SLOT_CLAIMED	xa_mk_value(0)

/*
 * GUP-fast, faults and unmappings that are not yet flushed hold references for a short
 * time. A discard waits for them once for each batch of pages.
 */
#define DISCARD_PAGES	512UL
#define UNMAP_TRIES	5
#define UNMAP_PAUSE	1000	/* microseconds */

/*
 * The number of references that a slot has to its page. With one reference, the kernel
 * would free the page when an error is revoked (unpoison-pfn of hwpoison-inject),
 * because it would take that reference for its own.
 */
#define OWN_REFERENCES	2

static bool slot_page_is_poisoned(const struct folio *folio)
{
	return actmem_page_notes(folio) & ACTMEM_PAGE_POISONED;
}

static struct folio *slot_page(struct actmem_region *region, unsigned long index)
{
	void *entry = xa_load(&region->slots, index);

	return xa_is_value(entry) ? NULL : entry;
}

/*
 * Returns the page with a reference for the caller, NULL if it is missing, or EHWPOISON
 * if the hardware reported an error in it.
 */
struct folio *actmem_slot_get(struct actmem_region *region, unsigned long index)
{
	struct folio *folio;

	spin_lock(&region->lock);
	folio = slot_page(region, index);
	if (folio && slot_page_is_poisoned(folio))
		folio = ERR_PTR(-EHWPOISON);
	else if (folio)
		folio_get(folio);
	spin_unlock(&region->lock);
	return folio;
}

/*
 * Claims an empty slot for the current task until actmem_slot_fill(). Returns EBUSY if the
 * slot has a page or is claimed.
 */
int actmem_slot_claim(struct actmem_region *region, unsigned long index)
{
	return xa_insert(&region->slots, index, SLOT_CLAIMED,
			 GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
}

/* Waits until the slot is not claimed. Returns EINTR if the task is killed. */
int actmem_slot_wait(struct actmem_region *region, unsigned long index)
{
	return wait_event_killable(region->unclaimed,
				   xa_load(&region->slots, index) != SLOT_CLAIMED) ? -EINTR : 0;
}

static void slot_enter_page(struct actmem_region *region, unsigned long index, struct folio *folio)
{
	folio->index = ACTMEM_SMALL_PAGES(index);
	folio_get(folio);
	actmem_page_notes_set(folio, actmem_page_notes(folio) | region->id << ACTMEM_PAGE_ID_SHIFT);
	spin_lock(&region->lock);
	/* Replaces an entry, so it allocates nothing. */
	WARN_ON_ONCE(xa_store(&region->slots, index, folio, GFP_NOWAIT) != SLOT_CLAIMED);
	actmem_account_count(region, folio_nid(folio), 1);
	if (region->inode)
		inode_add_bytes(region->inode, ACTMEM_PAGE_BYTES);
	spin_unlock(&region->lock);
}

/*
 * Ends the claim of the current task: enters the page and takes over its reference, or
 * empties the slot if @folio is an error.
 */
void actmem_slot_fill(struct actmem_region *region, unsigned long index, struct folio *folio)
{
	if (IS_ERR(folio))
		xa_erase(&region->slots, index);
	else
		slot_enter_page(region, index, folio);
	wake_up_all(&region->unclaimed);
}

/*
 * Reduces the page's references to one, if only the slot has references. Returns false
 * otherwise. The caller holds the region's lock, so that no other code can get the
 * page.
 */
static bool slot_page_take(struct folio *folio)
{
	bool frozen;

	if (!folio_trylock(folio))
		return false;
	frozen = folio_ref_freeze(folio, OWN_REFERENCES);
	if (frozen)
		folio_ref_unfreeze(folio, 1);
	folio_unlock(folio);
	return frozen;
}

/*
 * Empties the slot and returns its page with one reference, or NULL if other code has a
 * reference. The slot becomes empty last: a reader that finds it empty knows that the
 * page does not count any more.
 */
static struct folio *slot_empty(struct actmem_region *region, unsigned long index)
{
	struct folio *folio = slot_page(region, index);

	lockdep_assert_held(&region->lock);
	if (!folio || !slot_page_take(folio))
		return NULL;
	if (slot_page_is_poisoned(folio))
		region->poisoned_pages--;
	actmem_account_count(region, folio_nid(folio), -1);
	actmem_quota_uncharge(&actmem_nodes[folio_nid(folio)].pages);
	actmem_dmem_uncharge(region, index);
	actmem_account_uncharge(region);
	if (region->inode)
		inode_sub_bytes(region->inode, ACTMEM_PAGE_BYTES);
	/* Pairs with actmem_slot_is_missing(). */
	smp_wmb();
	xa_erase(&region->slots, index);
	return folio;
}

static void slot_give_back(struct actmem_region *region, unsigned long index)
{
	struct folio *folio;

	spin_lock(&region->lock);
	folio = slot_empty(region, index);
	spin_unlock(&region->lock);
	if (folio)
		actmem_pool_give(folio);
}

/*
 * Gives back every page to which only its slot has references. Returns true if no page
 * is left. The region has no inode, so it gets no new pages.
 */
bool actmem_slots_give_back(struct actmem_region *region)
{
	struct folio *folio;
	unsigned long i;

	xa_for_each(&region->slots, i, folio) {
		slot_give_back(region, i);
		cond_resched();
	}
	return !READ_ONCE(region->pages_held);
}

bool actmem_slot_is_missing(struct actmem_region *region, unsigned long index)
{
	bool is_missing = !slot_page(region, index);

	/* Pairs with slot_empty(). */
	smp_rmb();
	return is_missing;
}

bool actmem_slot_is_poisoned(struct actmem_region *region, unsigned long index)
{
	struct folio *folio;
	bool poisoned;

	if (!READ_ONCE(region->poisoned_pages))
		return false;
	spin_lock(&region->lock);
	folio = slot_page(region, index);
	poisoned = folio && slot_page_is_poisoned(folio);
	spin_unlock(&region->lock);
	return poisoned;
}

/*
 * Marks the page as poisoned: lookups do not return it any more, and the driver never
 * frees it. Returns ENOENT if the slot has another page, because @folio may be any page of
 * the machine, or EALREADY if the page was already marked.
 */
int actmem_slot_poison(struct actmem_region *region, unsigned long index, struct folio *folio)
{
	int err = 0;

	if (index >= region->page_count)
		return -ENOENT;
	spin_lock(&region->lock);
	if (slot_page(region, index) != folio) {
		err = -ENOENT;
	} else if (slot_page_is_poisoned(folio)) {
		err = -EALREADY;
	} else {
		actmem_page_notes_set(folio, actmem_page_notes(folio) | ACTMEM_PAGE_POISONED);
		region->poisoned_pages++;
	}
	spin_unlock(&region->lock);
	return err;
}

/*
 * Unmaps a poisoned page. A fault that got the page before it was marked may still map
 * it, so the function retries for a short time while other code has a reference. If a
 * fault maps the page even later, the next touch reports the error again, and the
 * driver unmaps the page then.
 */
void actmem_slot_unmap_poisoned(struct actmem_region *region, unsigned long index,
				struct folio *folio)
{
	int tries;

	mutex_lock(&region->unmap_lock);
	for (tries = 0; region->inode && tries < UNMAP_TRIES; tries++) {
		if (tries)
			usleep_range(UNMAP_PAUSE, 2 * UNMAP_PAUSE);
		unmap_mapping_range(region->inode->i_mapping, index * ACTMEM_PAGE_BYTES,
				    ACTMEM_PAGE_BYTES, 1);
		if (folio_ref_count(folio) == OWN_REFERENCES)
			break;
	}
	mutex_unlock(&region->unmap_lock);
}

unsigned long actmem_slots_missing(struct actmem_region *region, unsigned long first,
				   unsigned long count)
{
	unsigned long i, missing = 0;

	for (i = first; i < first + count; i++) {
		missing += actmem_slot_is_missing(region, i);
		cond_resched();
	}
	return missing;
}

/* Discards pages. Returns how many stay because other code has a reference. */
static unsigned long slot_range_discard(struct actmem_region *region, unsigned long first,
					unsigned long count)
{
	unsigned long i, busy = count - actmem_slots_missing(region, first, count);
	int tries = 0;

	while (busy && tries < UNMAP_TRIES) {
		if (tries)
			usleep_range(UNMAP_PAUSE, 2 * UNMAP_PAUSE);
		unmap_mapping_range(region->inode->i_mapping, first * ACTMEM_PAGE_BYTES,
				    count * ACTMEM_PAGE_BYTES, 1);
		for (i = first; i < first + count; i++) {
			slot_give_back(region, i);
			cond_resched();
		}
		busy = count - actmem_slots_missing(region, first, count);
		tries++;
	}
	return busy;
}

/* Gives back the pages of a range. Returns EBUSY if other code has a reference to one. */
int actmem_slots_discard(struct actmem_region *region, unsigned long first, unsigned long count,
			 unsigned long *done)
{
	unsigned long i, batch, busy = 0;

	for (i = 0; i < count; i += batch) {
		*done = i - busy;
		if (fatal_signal_pending(current))
			return -EINTR;
		batch = min(count - i, DISCARD_PAGES);
		busy += slot_range_discard(region, first + i, batch);
	}
	*done = count - busy;
	return busy ? -EBUSY : 0;
}

/*
 * Adds the page to @usage. Other tasks map and unmap it meanwhile. A mapping takes its
 * reference before it is counted and drops it later, so a page that is about to be
 * mapped may count as pinned.
 */
static void slot_page_usage(struct folio *folio, struct actmem_usage *usage)
{
	int mappings = actmem_folio_mapcount(folio);

	if (mappings > 0)
		usage->mapped_bytes += ACTMEM_PAGE_BYTES;
	if (folio_ref_count(folio) > OWN_REFERENCES + mappings)
		usage->pinned_bytes += ACTMEM_PAGE_BYTES;
}

/*
 * Returns EINTR if the task is killed during the call, because a region may have
 * millions of pages.
 */
int actmem_slots_usage(struct actmem_region *region, struct actmem_usage *usage)
{
	struct folio *folio;
	unsigned long i;

	memset(usage, 0, sizeof(*usage));
	spin_lock(&region->lock);
	xa_for_each(&region->slots, i, folio) {
		if (fatal_signal_pending(current))
			break;
		if (!xa_is_value(folio))
			slot_page_usage(folio, usage);
		cond_resched_lock(&region->lock);
	}
	spin_unlock(&region->lock);
	return fatal_signal_pending(current) ? -EINTR : 0;
}
