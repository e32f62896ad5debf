// SPDX-License-Identifier: GPL-2.0
/*
 * The pages of a region: looked up, entered, given back.
 *
 * A slot is empty or holds a page with two references of ours. The gate through which
 * every page leaves: its slot is looked up and its reference taken under the region's
 * lock, and under the same lock the count is frozen at what is ours. Frozen, nobody else
 * has it or can come to have it. Not frozen, somebody does, and the page stays. That
 * holds while the kernel still has the page mapped in some translation buffer, too, as
 * it lets go of it only after having flushed.
 *
 * There is one who has no reference: having mapped the page, a fault has handed
 * its own over to the mapping, which may be gone by the time that it unlocks the
 * page. So a page that is locked stays, too.
 *
 * A page in which the hardware has erred stays in its slot until it leaves by the
 * gate as any other does, but nobody is given it any more.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>

#include "actmem.h"
#include "compat/compat.h"

/* How many pages to look at under one lock. */
#define BATCH_PAGES	16

/*
 * References of GUP-fast, of faults and of unmappings not yet flushed last for an
 * instant, which is waited for: by a discard, once for so many pages.
 */
#define DISCARD_PAGES	512UL
#define UNMAP_TRIES	5
#define UNMAP_PAUSE	1000	/* microseconds */

/*
 * The references that a slot has of its page. The kernel would take a page with but one
 * for its own to free when it is told that an error was none (hwpoison-inject's
 * unpoison-pfn).
 */
#define OWN_REFERENCES	2

static bool page_is_poisoned(const struct folio *folio)
{
	return actmem_page_notes(folio) & ACTMEM_PAGE_POISONED;
}

/*
 * The page with a reference for the caller, NULL if it is missing, EHWPOISON if the
 * hardware has erred in it.
 */
struct folio *actmem_slot_get(struct actmem_region *region, unsigned long index)
{
	struct folio *folio;

	spin_lock(&region->lock);
	folio = region->folios[index];
	if (folio && page_is_poisoned(folio))
		folio = ERR_PTR(-EHWPOISON);
	else if (folio)
		folio_get(folio);
	spin_unlock(&region->lock);
	return folio;
}

/* Takes over the page, for which the slot is empty. */
void actmem_slot_fill(struct actmem_region *region, unsigned long index, struct folio *folio)
{
	folio->index = ACTMEM_SMALL_PAGES(index);
	INIT_LIST_HEAD(&folio->lru);
	folio_get(folio);
	actmem_page_note(folio, actmem_page_notes(folio) | region->id << ACTMEM_PAGE_ID_SHIFT);
	spin_lock(&region->lock);
	WARN_ON_ONCE(region->folios[index]);
	WRITE_ONCE(region->folios[index], folio);
	actmem_count_page(region, folio_nid(folio), 1);
	if (region->inode)
		inode_add_bytes(region->inode, ACTMEM_PAGE_BYTES);
	spin_unlock(&region->lock);
}

/*
 * Leaves the page one reference, if nobody else has it. Nobody can come to have it, as
 * long as the lock of its region is held.
 */
static bool page_leave_one_reference(struct folio *folio)
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
 * The page with one reference, if nobody else has it: the slot is empty then, and who
 * finds it so finds that the page does not count any more. NULL otherwise.
 */
static struct folio *slot_empty(struct actmem_region *region, unsigned long index)
{
	struct folio *folio = region->folios[index];

	lockdep_assert_held(&region->lock);
	if (!folio || !page_leave_one_reference(folio))
		return NULL;
	if (page_is_poisoned(folio))
		region->poisoned_pages--;
	list_del_init(&folio->lru);
	actmem_count_page(region, folio_nid(folio), -1);
	actmem_quota_uncharge(&actmem_nodes[folio_nid(folio)].pages);
	actmem_dmem_uncharge(region, index);
	actmem_uncharge_page(region);
	if (region->inode)
		inode_sub_bytes(region->inode, ACTMEM_PAGE_BYTES);
	/* Pairs with actmem_slot_is_missing(). */
	smp_store_release(&region->folios[index], NULL);
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

/* Gives back every page that nobody else holds; true if that was all of them. */
bool actmem_slots_give_back(struct actmem_region *region)
{
	unsigned long i;

	for (i = 0; i < region->page_count; i++) {
		if (!(i % BATCH_PAGES))
			cond_resched();
		if (actmem_slot_is_missing(region, i))
			continue;
		slot_give_back(region, i);
		cond_resched();
	}
	return !READ_ONCE(region->pages_held);
}

/* The inode is gone: what somebody still holds is on a list of its own from now on. */
void actmem_slots_linger(struct actmem_region *region)
{
	unsigned long i;

	spin_lock(&region->lock);
	actmem_count_as_lingering(region);
	for (i = 0; i < region->page_count; i++) {
		if (region->folios[i])
			list_move_tail(&region->folios[i]->lru, &region->lingering_pages);
		cond_resched_lock(&region->lock);
	}
	spin_unlock(&region->lock);
}

/*
 * Of a lingering region, which gains no page any more: gives back what nobody holds by
 * now; true if that was all. One task at a time.
 */
bool actmem_slots_give_back_lingering(struct actmem_region *region)
{
	struct folio *folio, *next;
	LIST_HEAD(leaving);

	spin_lock(&region->lock);
	list_for_each_entry_safe(folio, next, &region->lingering_pages, lru) {
		if (slot_empty(region, folio->index >> ACTMEM_PAGE_ORDER))
			list_add(&folio->lru, &leaving);
		cond_resched_lock(&region->lock);
	}
	spin_unlock(&region->lock);
	list_for_each_entry_safe(folio, next, &leaving, lru) {
		list_del(&folio->lru);
		actmem_pool_give(folio);
		cond_resched();
	}
	return list_empty(&region->lingering_pages);
}

bool actmem_slot_is_missing(const struct actmem_region *region, unsigned long index)
{
	/* Pairs with slot_empty(). */
	return !smp_load_acquire(&region->folios[index]);
}

bool actmem_slot_is_poisoned(struct actmem_region *region, unsigned long index)
{
	bool poisoned = false;

	if (!READ_ONCE(region->poisoned_pages))
		return false;
	spin_lock(&region->lock);
	if (region->folios[index])
		poisoned = page_is_poisoned(region->folios[index]);
	spin_unlock(&region->lock);
	return poisoned;
}

/*
 * Nobody is given the page any more, and it will never be free. ENOENT if the slot has
 * another, as @folio may be any page of the machine; EALREADY if it was so before.
 */
int actmem_slot_poison(struct actmem_region *region, unsigned long index, struct folio *folio)
{
	int err = 0;

	if (index >= region->page_count)
		return -ENOENT;
	spin_lock(&region->lock);
	if (region->folios[index] != folio) {
		err = -ENOENT;
	} else if (page_is_poisoned(folio)) {
		err = -EALREADY;
	} else {
		actmem_page_note(folio, actmem_page_notes(folio) | ACTMEM_PAGE_POISONED);
		region->poisoned_pages++;
	}
	spin_unlock(&region->lock);
	return err;
}

/*
 * Unmaps a page that has been poisoned. A fault may have been given it before and map it
 * yet, so that it is tried again for an instant while somebody has it. A fault that is
 * later still maps what the next touch finds to fail: that is reported, and unmapped.
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

unsigned long actmem_slots_missing(const struct actmem_region *region, unsigned long first,
				   unsigned long count)
{
	unsigned long i, missing = 0;

	for (i = first; i < first + count; i++) {
		missing += actmem_slot_is_missing(region, i);
		cond_resched();
	}
	return missing;
}

/* How many of the pages stay, as somebody else holds them. */
static unsigned long slots_discard(struct actmem_region *region, unsigned long first,
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

/* Gives back what nobody else holds; EBUSY if that was not all. */
int actmem_discard(struct actmem_region *region, unsigned long first, unsigned long count,
		   unsigned long *done)
{
	unsigned long i, batch, busy = 0;

	for (i = 0; i < count; i += batch) {
		int err = actmem_stopped();

		*done = i - busy;
		if (err)
			return err;
		batch = min(count - i, DISCARD_PAGES);
		busy += slots_discard(region, first + i, batch);
	}
	*done = count - busy;
	return busy ? -EBUSY : 0;
}

/*
 * Others map and unmap meanwhile. A mapping has a reference, which comes before its count
 * and goes after it: a page that is about to be mapped may count as pinned.
 */
static void page_usage(struct folio *folio, struct actmem_usage *usage)
{
	int mappings = actmem_folio_mapcount(folio);

	if (mappings > 0)
		usage->mapped_bytes += ACTMEM_PAGE_BYTES;
	if (folio_ref_count(folio) > OWN_REFERENCES + mappings)
		usage->pinned_bytes += ACTMEM_PAGE_BYTES;
}

/* EINTR if the task is killed meanwhile: there may be millions of pages. */
int actmem_slots_usage(struct actmem_region *region, struct actmem_usage *usage)
{
	unsigned long i, end;

	memset(usage, 0, sizeof(*usage));
	for (i = 0; i < region->page_count; cond_resched()) {
		if (fatal_signal_pending(current))
			return -EINTR;
		end = min(i + BATCH_PAGES, region->page_count);
		spin_lock(&region->lock);
		for (; i < end; i++)
			if (region->folios[i])
				page_usage(region->folios[i], usage);
		spin_unlock(&region->lock);
	}
	return 0;
}
