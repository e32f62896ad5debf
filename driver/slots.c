// SPDX-License-Identifier: GPL-2.0
/*
 * A region has a slot for each page. This file looks up pages, stores pages in slots, and gives
 * pages back.
 *
 * A slot is empty, claimed by the task that is allocating the page, or filled with a page. A task
 * that finds a slot claimed sleeps on the region's wait queue until a claim ends, and then checks
 * the slot again.
 *
 * Every page leaves its slot through slot_empty(). Lookups read the slot and take a reference under
 * the region's lock. Under the same lock, slot_empty() freezes the reference count, if only the
 * driver's own references are left. If the freeze succeeds, no other code has the page or can get
 * the page. If the freeze fails, other code has a reference, and the page stays. The freeze also
 * fails while a stale TLB entry exists, because the kernel drops a mapping's reference only after
 * the TLB flush.
 *
 * There is one exception: a page fault can use a page to which it holds no reference. The fault
 * locks the page and hands its reference over to the mapping, but the mapping can be gone before
 * the fault unlocks the page. Therefore slot_empty() also leaves a locked page in its slot.
 *
 * A page in which the hardware reported an error stays in its slot until slot_empty() removes the
 * page. Lookups no longer return the page.
 */
#include <linux/delay.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>

#include "actmem.h"
#include "compat/compat.h"

/* The entry of a claimed slot. Lookups treat a claimed slot as empty. */
#define SLOT_CLAIMED	xa_mk_value(0)

/*
 * GUP-fast, faults and unmappings that are not yet flushed hold references for a short time. A
 * discard waits for these references after each batch of DISCARD_PAGES pages, not after each page.
 */
#define DISCARD_PAGES	512UL
#define UNMAP_TRIES	5
#define UNMAP_PAUSE	1000	/* microseconds */

/* The number of pages after which a sum over all pages releases the region's lock. */
#define USAGE_PAGES	256

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
 * Returns the page with a reference for the caller, NULL if the page is missing, or EHWPOISON if
 * the hardware reported an error in the page.
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
 * Claims an empty slot for the current task until actmem_slot_fill(). Returns EBUSY if the slot has
 * a page or is claimed.
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
	actmem_page_notes_set(folio, actmem_page_notes(folio) | region->id << ACTMEM_PAGE_ID_SHIFT);
	spin_lock(&region->lock);
	/* xa_store() replaces an entry here, so no memory is allocated. */
	WARN_ON_ONCE(xa_store(&region->slots, index, folio, GFP_NOWAIT) != SLOT_CLAIMED);
	actmem_account_count(region, folio_nid(folio), 1);
	if (region->inode)
		inode_add_bytes(region->inode, ACTMEM_PAGE_BYTES);
	spin_unlock(&region->lock);
}

/*
 * Ends the claim of the current task: stores @folio in the slot and takes over the page. If @folio
 * is an error, the function empties the slot.
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
 * Returns true if only the driver holds references and the page is not locked. The caller holds the
 * region's lock, so no other code can get the page afterwards.
 */
static bool slot_page_is_unused(struct folio *folio)
{
	bool frozen;

	if (!folio_trylock(folio))
		return false;
	frozen = folio_ref_freeze(folio, ACTMEM_PAGE_REFERENCES);
	if (frozen)
		folio_ref_unfreeze(folio, ACTMEM_PAGE_REFERENCES);
	folio_unlock(folio);
	return frozen;
}

/*
 * Removes the page from the slot, and returns the page. Returns NULL if other code has a reference
 * or the lock of the page. Empties the slot last, so that no counter includes the page any more
 * when a reader finds the slot empty.
 */
static struct folio *slot_empty(struct actmem_region *region, unsigned long index)
{
	struct folio *folio = slot_page(region, index);

	lockdep_assert_held(&region->lock);
	if (!folio || !slot_page_is_unused(folio))
		return NULL;
	if (slot_page_is_poisoned(folio))
		region->poisoned_pages--;
	actmem_account_count(region, folio_nid(folio), -1);
	actmem_quota_uncharge(&actmem_nodes[folio_nid(folio)].pages);
	if (ACTMEM_HAS_DMEM)
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
 * Gives back every page to which only its slot holds references. Returns true if no page is left.
 * The region has no inode, and therefore gets no new pages.
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
 * Marks the page as poisoned: lookups no longer return the page, and the driver never frees the
 * page. The caller can pass any page of the machine as @folio. Returns ENOENT if the slot does not
 * contain @folio, or EALREADY if the page is already marked.
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
 * Unmaps a poisoned page. A fault that got the page before the mark was set can still map the page.
 * So the function retries for a short time while other code has a reference. If a fault maps the
 * page even later, the next touch reports the error again, and the driver unmaps the page then.
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
		if (folio_ref_count(folio) == ACTMEM_PAGE_REFERENCES)
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

/* Discards pages. Returns how many pages stay because other code has a reference. */
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

/* Gives back the pages of a range. Returns EBUSY if other code has a reference to a page. */
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
 * Adds the page to the sums in @info. A mapping takes a reference before the page's map count
 * rises, and drops the reference after the count falls. So a page that a task is mapping or
 * unmapping may count as pinned.
 */
static void slot_page_usage(struct folio *folio, struct actmem_ioctl_info *info)
{
	int mappings = actmem_folio_mapcount(folio);

	if (mappings > 0)
		info->mapped_bytes += ACTMEM_PAGE_BYTES;
	if (folio_ref_count(folio) > ACTMEM_PAGE_REFERENCES + mappings)
		info->pinned_bytes += ACTMEM_PAGE_BYTES;
}

/*
 * Adds up the usage of all pages. A region may have millions of pages, so the function stops and
 * returns EINTR if the task is killed.
 */
int actmem_slots_usage(struct actmem_region *region, struct actmem_ioctl_info *info)
{
	unsigned long i, walked = 0;
	struct folio *folio;

	info->mapped_bytes = 0;
	info->pinned_bytes = 0;
	spin_lock(&region->lock);
	xa_for_each(&region->slots, i, folio) {
		if (fatal_signal_pending(current))
			break;
		if (!xa_is_value(folio))
			slot_page_usage(folio, info);
		/*
		 * Faults in the region spin on the lock. cond_resched_lock() would let them wait
		 * until the end of the loop, unless the kernel is fully preemptible.
		 */
		if (++walked % USAGE_PAGES == 0) {
			spin_unlock(&region->lock);
			cond_resched();
			spin_lock(&region->lock);
		}
	}
	spin_unlock(&region->lock);
	return fatal_signal_pending(current) ? -EINTR : 0;
}
