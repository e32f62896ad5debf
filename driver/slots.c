// SPDX-License-Identifier: GPL-2.0
/*
 * The pages of a region: looked up, entered, given back.
 *
 * A slot is empty or holds a page with one reference of ours, or two once the
 * hardware has erred in it. The gate through
 * which every page leaves: its slot is looked up and its reference taken under
 * the region's lock, and under the same lock the count is frozen at what is ours.
 * Frozen, nobody else has it or can come to have it. Not frozen, somebody does,
 * and the page stays. That holds while the kernel still has the page mapped in
 * some translation buffer, too, as it lets go of it only after having flushed.
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
#include "import.h"

/* How many pages to look at under one lock. */
#define BATCH_PAGES	16

/*
 * References of GUP-fast and of unmappings not yet flushed last for an instant,
 * which is waited for once for so many pages.
 */
#define DISCARD_PAGES	512UL
#define DISCARD_TRIES	5
#define DISCARD_PAUSE	1000	/* microseconds */

static bool is_poisoned(const struct folio *folio)
{
	return actmem_page_notes_of(folio) & ACTMEM_PAGE_POISONED;
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
	if (folio && is_poisoned(folio))
		folio = ERR_PTR(-EHWPOISON);
	else if (folio)
		folio_get(folio);
	spin_unlock(&region->lock);
	return folio;
}

/* With the reference to the page, or the error, that the slot was asked for. */
int actmem_extent_of_slot(struct folio *folio, u64 offset, struct actmem_extent *extent)
{
	if (IS_ERR(folio))
		return actmem_slot_error(folio);
	extent->folio = folio;
	extent->offset = offset % ACTMEM_PAGE_BYTES;
	extent->length = ACTMEM_PAGE_BYTES - extent->offset;
	return 0;
}

/**
 * actmem_extent_get() - where bytes of a region are, whoever made its memory
 * @region: the region
 * @offset: of the first of them; within the region
 * @extent: what they are in, and how many are
 *
 * Returns 0; EIO if the hardware has erred in the page; ESTALE if the file that was
 * imported has other pages there by now.
 */
int actmem_extent_get(struct actmem_region *region, u64 offset, struct actmem_extent *extent)
{
	if (region->import)
		return actmem_import_extent(region, offset, extent);
	return actmem_extent_of_slot(actmem_slot_get(region, offset / ACTMEM_PAGE_BYTES), offset,
				     extent);
}

/* Takes over the page, for which the slot is empty. */
void actmem_slot_fill(struct actmem_region *region, unsigned long index, struct folio *folio)
{
	folio->index = ACTMEM_SMALL_PAGES(index);
	spin_lock(&region->lock);
	WARN_ON_ONCE(region->folios[index]);
	WRITE_ONCE(region->folios[index], folio);
	actmem_count_page(region, folio);
	if (region->inode)
		inode_add_bytes(region->inode, ACTMEM_PAGE_BYTES);
	spin_unlock(&region->lock);
	/*
	 * Who looked for a page that had erred may have come by before it was here. The
	 * slot is filled before the question, as who reports an error has it asked
	 * before looking at slots.
	 */
	smp_mb();
	if (actmem_poison_is_suspected())
		actmem_poison_check(region, index);
}

/* The references that a slot has of its page. */
static int own_references(const struct folio *folio)
{
	return 1 + is_poisoned(folio);
}

/* Nobody else can come to have it, as long as the lock of its region is held. */
static bool has_nobody_else(struct folio *folio)
{
	int own = own_references(folio);
	bool frozen;

	if (!folio_trylock(folio))
		return false;
	frozen = folio_ref_freeze(folio, own);
	if (frozen)
		folio_ref_unfreeze(folio, own);
	folio_unlock(folio);
	return frozen;
}

/*
 * The page, if nobody else has it: the slot is empty then, and who finds it so
 * finds that the page does not count any more. NULL otherwise.
 */
static struct folio *empty_slot(struct actmem_region *region, unsigned long index)
{
	struct folio *folio = region->folios[index];

	lockdep_assert_held(&region->lock);
	if (!folio || !has_nobody_else(folio))
		return NULL;
	if (is_poisoned(folio)) {
		list_del(&folio->lru);
		region->poisoned_pages--;
	}
	actmem_uncount_page(region, folio);
	actmem_node_unreserve(folio_nid(folio));
	actmem_release_reserved(region, 1);
	if (region->inode)
		inode_sub_bytes(region->inode, ACTMEM_PAGE_BYTES);
	/* Pairs with actmem_slot_is_missing(). */
	smp_store_release(&region->folios[index], NULL);
	return folio;
}

static void give_slot_back(struct actmem_region *region, unsigned long index)
{
	struct folio *folio;

	spin_lock(&region->lock);
	folio = empty_slot(region, index);
	spin_unlock(&region->lock);
	if (folio)
		actmem_pool_give(folio);
}

/*
 * Gives back every page that nobody else holds; true if that was all of them.
 * The region gains none any more, so that what it keeps is looked for only
 * where it was the last time.
 */
bool actmem_slots_give_back(struct actmem_region *region)
{
	unsigned long i, first = 0, end = 0;

	if (region->import)
		return actmem_import_give_back(region);
	for (i = region->kept_first; i < region->kept_end; i++) {
		if (!(i % BATCH_PAGES))
			cond_resched();
		if (actmem_slot_is_missing(region, i))
			continue;
		give_slot_back(region, i);
		cond_resched();
		if (actmem_slot_is_missing(region, i))
			continue;
		if (!end)
			first = i;
		end = i + 1;
	}
	region->kept_first = first;
	region->kept_end = end;
	return !end;
}

bool actmem_slot_is_missing(const struct actmem_region *region, unsigned long index)
{
	/* Memory of others is all there. Pairs with empty_slot(). */
	return !region->import && !smp_load_acquire(&region->folios[index]);
}

bool actmem_slot_is_poisoned(struct actmem_region *region, unsigned long index)
{
	bool poisoned = false;

	if (!READ_ONCE(region->poisoned_pages))
		return false;
	spin_lock(&region->lock);
	if (region->folios[index])
		poisoned = is_poisoned(region->folios[index]);
	spin_unlock(&region->lock);
	return poisoned;
}

/*
 * Nobody is given the page any more, to which the caller has a reference. False if
 * it is not there, or that was known. From then on the slot has two of its references:
 * the kernel would take a page with but one for its own to free when it is told that
 * the error was none (hwpoison-inject's unpoison-pfn).
 */
bool actmem_slot_poison(struct actmem_region *region, unsigned long index, struct folio *folio)
{
	bool is_news;

	spin_lock(&region->lock);
	is_news = region->folios[index] == folio && !is_poisoned(folio);
	if (is_news) {
		actmem_page_note(folio, actmem_page_notes_of(folio) | ACTMEM_PAGE_POISONED);
		folio_get(folio);
		list_add_tail(&folio->lru, &region->poisoned);
		region->poisoned_pages++;
	}
	spin_unlock(&region->lock);
	return is_news;
}

/*
 * Unmaps the pages in which the hardware has erred. False if somebody else has one
 * of them: he may be a fault that was given it before it erred and is to map it yet,
 * so that it has to be looked at again.
 */
bool actmem_slots_unmap_poisoned(struct actmem_region *region)
{
	unsigned long i, count = READ_ONCE(region->poisoned_pages);
	bool settled = true;

	mutex_lock(&region->unmap_lock);
	for (i = 0; i < count; i++) {
		struct folio *folio;
		bool held = false;
		loff_t offset = 0;

		spin_lock(&region->lock);
		folio = list_first_entry_or_null(&region->poisoned, struct folio, lru);
		if (folio) {
			list_move_tail(&folio->lru, &region->poisoned);
			offset = (loff_t)folio->index << PAGE_SHIFT;
			/* A mapping holds it; while some come and go they cannot be counted. */
			held = folio_ref_count(folio) != own_references(folio);
			settled = settled && !held;
		}
		spin_unlock(&region->lock);
		if (held && region->inode)
			unmap_mapping_range(region->inode->i_mapping, offset, ACTMEM_PAGE_BYTES, 1);
		cond_resched();
	}
	mutex_unlock(&region->unmap_lock);
	return settled;
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
static unsigned long discard_slots(struct actmem_region *region, unsigned long first,
				   unsigned long count)
{
	unsigned long i, busy = count - actmem_slots_missing(region, first, count);
	int tries = 0;

	while (busy && tries < DISCARD_TRIES) {
		if (tries)
			usleep_range(DISCARD_PAUSE, 2 * DISCARD_PAUSE);
		unmap_mapping_range(region->inode->i_mapping, first * ACTMEM_PAGE_BYTES,
				    count * ACTMEM_PAGE_BYTES, 1);
		for (i = first; i < first + count; i++) {
			give_slot_back(region, i);
			cond_resched();
		}
		busy = count - actmem_slots_missing(region, first, count);
		tries++;
	}
	return busy;
}

/* Gives back what nobody else holds; EBUSY if that was not all. */
int actmem_discard(struct actmem_region *region, unsigned long first, unsigned long count,
		   const struct actmem_caller *caller, unsigned long *done)
{
	unsigned long i, batch, busy = 0;

	for (i = 0; i < count; i += batch) {
		int err = actmem_caller_stopped(caller);

		*done = i - busy;
		if (err)
			return err;
		batch = min(count - i, DISCARD_PAGES);
		busy += discard_slots(region, first + i, batch);
	}
	*done = count - busy;
	return busy ? -EBUSY : 0;
}

/*
 * Counts are read one after the other while others map and unmap, so that
 * they are taken again until they hold still. Where they do not, the page may be
 * pinned: whoever seals must not miss that.
 */
static void folio_usage(struct folio *folio, struct actmem_usage *usage)
{
	int references, mappings, tries = 4;
	bool still;

	do {
		references = folio_ref_count(folio);
		smp_rmb();	/* the second reading of each comes after the first */
		mappings = actmem_folio_mapcount(folio);
		smp_rmb();	/* as above */
		still = references == folio_ref_count(folio);
		smp_rmb();	/* as above */
		still = still && mappings == actmem_folio_mapcount(folio);
	} while (!still && --tries);

	if (mappings > 0)
		usage->mapped_bytes += ACTMEM_PAGE_BYTES;
	/* Each mapping has one, too. */
	if (!still || references > own_references(folio) + mappings)
		usage->pinned_bytes += ACTMEM_PAGE_BYTES;
}

/* EINTR if the task is killed meanwhile: there may be millions of pages. */
int actmem_slots_usage(struct actmem_region *region, struct actmem_usage *usage)
{
	unsigned long i, end;

	memset(usage, 0, sizeof(*usage));
	if (region->import)
		return actmem_import_usage(region, usage);
	for (i = 0; i < region->page_count; cond_resched()) {
		if (fatal_signal_pending(current))
			return -EINTR;
		end = min(i + BATCH_PAGES, region->page_count);
		spin_lock(&region->lock);
		for (; i < end; i++)
			if (region->folios[i])
				folio_usage(region->folios[i], usage);
		spin_unlock(&region->lock);
	}
	return 0;
}
