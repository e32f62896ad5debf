// SPDX-License-Identifier: GPL-2.0
/*
 * Pages in which the hardware has erred. The unit is the huge page: it is unmapped
 * everywhere, nobody is given it any more, and when it leaves its region it is kept
 * for good, so that the page allocator cannot hand it out.
 *
 * What is reported is a small page. It is queued here and looked for by a worker:
 * a huge page does not know its region, and the kernel, which takes such pages to
 * belong to a driver, only marks them (PG_hwpoison). Pages of a pool are not looked
 * for: once anything has been reported, each is looked at when it leaves its pool.
 */
#include <linux/kfifo.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/workqueue.h>

#include "actmem.h"
#include "import.h"

#define REPORTS_MAX	64
/* How long those have who were given a page before it erred. */
#define SETTLE_INTERVAL	HZ
/* Slots to look at before others may run. */
#define BATCH_SLOTS	4096
#define ANY_PFN		ULONG_MAX

char actmem_page_notes[ACTMEM_PAGE_NOTES];

/* Raw, as a probe of a tracepoint must not sleep, on PREEMPT_RT either. */
static DEFINE_RAW_SPINLOCK(reports_lock);
static DEFINE_KFIFO(reports, unsigned long, REPORTS_MAX);
/* More were reported than there is room for: every page is to be looked at. */
static bool reports_lost;
static bool suspected;
static atomic_long_t quarantined;

/*
 * Whether anything has been reported since the module was loaded, so that it is
 * worth looking at pages.
 */
bool actmem_poison_is_suspected(void)
{
	return READ_ONCE(suspected);
}

bool actmem_page_has_failed(struct folio *folio)
{
	long i;

	for (i = 0; i < folio_nr_pages(folio); i++)
		if (PageHWPoison(folio_page(folio, i)))
			return true;
	return false;
}

/*
 * Takes over a page with its references, which stay, so that nobody is ever given it;
 * two, as actmem_slot_poison() says. So does its charge, if it is not a pool's: no
 * function is exported by which a memory cgroup would have it back before it is free.
 */
void actmem_quarantine(struct folio *folio)
{
	/* Otherwise it has been told of, and counted, in its region. */
	if (!(actmem_page_notes_of(folio) & ACTMEM_PAGE_POISONED)) {
		folio_get(folio);
		actmem_count_poisoned_page(folio_nid(folio));
		actmem_page_failed(NULL, 0, folio);
	}
	atomic_long_inc(&quarantined);
}

/*
 * The kernel marks and counts what it has been told of. Of what only we have heard it
 * is told now. False if the small page is none of @folio.
 */
static bool mark(struct folio *folio, unsigned long pfn)
{
	if (pfn - folio_pfn(folio) >= folio_nr_pages(folio))
		return false;
	if (IS_ENABLED(CONFIG_MEMORY_FAILURE) && !PageHWPoison(pfn_to_page(pfn)))
		memory_failure(pfn, 0);
	return true;
}

/* True if it is out of use, by now or since before. */
static bool check_slot(struct actmem_region *region, unsigned long index, unsigned long pfn)
{
	struct folio *folio = actmem_slot_get(region, index);
	bool marked;

	if (!folio)
		return false;
	if (IS_ERR(folio))
		return true;
	marked = pfn == ANY_PFN ? actmem_page_has_failed(folio) : mark(folio, pfn);
	if (marked && actmem_slot_poison(region, index, folio)) {
		actmem_count_poisoned_page(folio_nid(folio));
		actmem_page_failed(region, index, folio);
	}
	folio_put(folio);
	return marked;
}

/*
 * The kernel knows whose those are, and does all that is to be done, once it has been
 * told: of an error in the midst of a copy that has survived it, it has not.
 */
static void check_import(struct actmem_region *region, unsigned long pfn)
{
	struct folio *folio = pfn == ANY_PFN ? NULL : actmem_import_find(region, pfn);

	if (!folio)
		return;
	/* Of a page of hugetlb the first of the small ones is marked. */
	if (IS_ENABLED(CONFIG_MEMORY_FAILURE) && !is_page_hwpoison(pfn_to_page(pfn)))
		memory_failure(pfn, 0);
	folio_put(folio);
}

static void check_region(struct actmem_region *region, unsigned long pfn)
{
	/* Where its struct would be: it may be a page of any kind, or gone by now. */
	const void *wanted = pfn == ANY_PFN ? NULL : pfn_to_page(round_down(pfn, HPAGE_PMD_NR));
	unsigned long i;

	if (region->import) {
		check_import(region, pfn);
		return;
	}
	for (i = 0; i < region->page_count; i++) {
		if (!wanted || READ_ONCE(region->folios[i]) == wanted)
			check_slot(region, i, pfn);
		if (!(i % BATCH_SLOTS))
			cond_resched();
	}
}

static void check_regions(unsigned long pfn)
{
	struct actmem_region *region;
	u64 id = 0;

	while ((region = actmem_region_next(&id))) {
		check_region(region, pfn);
		actmem_region_put(region);
	}
}

static bool unmap_in_regions(void)
{
	struct actmem_region *region;
	bool settled = true;
	u64 id = 0;

	while ((region = actmem_region_next(&id))) {
		settled &= actmem_slots_unmap_poisoned(region);
		actmem_region_put(region);
		cond_resched();
	}
	return settled;
}

static void settle_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(settler, settle_work);

static void settle_work(struct work_struct *work)
{
	if (!unmap_in_regions())
		schedule_delayed_work(&settler, SETTLE_INTERVAL);
}

static bool next_report(unsigned long *pfn)
{
	unsigned long flags;
	bool found;

	raw_spin_lock_irqsave(&reports_lock, flags);
	found = kfifo_get(&reports, pfn);
	raw_spin_unlock_irqrestore(&reports_lock, flags);
	return found;
}

static void report_work(struct work_struct *work)
{
	unsigned long pfn;

	while (next_report(&pfn))
		check_regions(pfn);
	if (xchg(&reports_lost, false))
		check_regions(ANY_PFN);
	settle_work(NULL);
}

static DECLARE_WORK(reporter, report_work);

/* There is an error in this small page, whoever's it is. Does not sleep. */
void actmem_poison_report(unsigned long pfn)
{
	unsigned long flags;

	if (!pfn_valid(pfn))
		return;
	WRITE_ONCE(suspected, true);
	raw_spin_lock_irqsave(&reports_lock, flags);
	if (!kfifo_put(&reports, pfn))
		WRITE_ONCE(reports_lost, true);
	raw_spin_unlock_irqrestore(&reports_lock, flags);
	schedule_work(&reporter);
}

/*
 * Waits until what was reported before has been dealt with, and whoever looks at pages
 * now has let go of them.
 */
void actmem_poison_settle(void)
{
	if (!actmem_poison_is_suspected())
		return;
	flush_work(&reporter);
	flush_work(&settler.work);
}

/*
 * Whether the page has been found to have an error, as those are that the kernel
 * marks: it is out of use then.
 */
bool actmem_poison_check(struct actmem_region *region, unsigned long index)
{
	bool failed;

	if (region->import)
		return actmem_import_has_failed(region, index);
	failed = check_slot(region, index, ANY_PFN);
	if (failed && !actmem_slots_unmap_poisoned(region))
		schedule_delayed_work(&settler, SETTLE_INTERVAL);
	return failed;
}

/* EIO, in detail. */
void actmem_poison_explain(struct actmem_region *region, unsigned long index,
			   struct actmem_why *why)
{
	actmem_no_reason(why);
	why->reason = ACTMEM_WHY_POISON;
	why->wanted = index * ACTMEM_PAGE_BYTES;
	if (region->import) {
		why->node = actmem_import_node(region, index);
		return;
	}
	spin_lock(&region->lock);
	if (region->folios[index])
		why->node = folio_nid(region->folios[index]);
	spin_unlock(&region->lock);
}

/* No region is left, and nobody reports any more. */
void actmem_poison_stop(void)
{
	cancel_work_sync(&reporter);
	cancel_delayed_work_sync(&settler);
}

/* No page is left that could come to be kept. */
void actmem_poison_exit(void)
{
	long pages = atomic_long_read(&quarantined);

	if (pages)
		pr_warn("actmem: %ld pages of %llu bytes with hardware errors stay out of use until the next boot\n",
			pages, ACTMEM_PAGE_BYTES);
}
