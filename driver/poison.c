// SPDX-License-Identifier: GPL-2.0
/*
 * Pages in which the hardware has erred, as told by the processors' machine checks, and
 * by the kernel when it has been told in any other way: by the firmware, a device (CXL)
 * or madvise(MADV_HWPOISON).
 *
 * The unit is the huge page: it is unmapped everywhere, nobody is given it any more, and
 * when it leaves its region it is kept for good, so that the page allocator cannot hand
 * it out.
 *
 * A report is of a small page. It is queued here and looked for by a worker:
 * a huge page does not know its region, and the kernel, which takes such pages to
 * belong to a driver, only marks them (PG_hwpoison). Pages of a pool are not looked
 * for: once anything has been reported, each is looked at when it leaves its pool.
 */
#include <linux/kfifo.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include <asm/mce.h>

#include "actmem.h"
#include "compat/memory_failure.h"

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

/* Whether the kernel has marked any of these, by the small page. */
bool actmem_bytes_have_failed(struct folio *folio, size_t offset, size_t length)
{
	size_t page, last = (offset + length - 1) >> PAGE_SHIFT;

	for (page = offset >> PAGE_SHIFT; page <= last; page++)
		if (PageHWPoison(folio_page(folio, page)))
			return true;
	return false;
}

bool actmem_page_has_failed(struct folio *folio)
{
	return actmem_bytes_have_failed(folio, 0, folio_size(folio));
}

/* @region is NULL if it is in none. */
static void poison_tell(const struct actmem_region *region, unsigned long index,
			struct folio *folio)
{
	atomic_long_inc(&actmem_nodes[folio_nid(folio)].poisoned);
	if (region)
		pr_err("actmem: hardware error in the page at offset %llu of region %llu '%s', made by process %d: %llu bytes of node %d at pfn %#lx are out of use\n",
		       index * ACTMEM_PAGE_BYTES, region->id, region->name, pid_nr(region->pid),
		       ACTMEM_PAGE_BYTES, folio_nid(folio), folio_pfn(folio));
	else
		pr_err("actmem: hardware error in a page of no region: %llu bytes of node %d at pfn %#lx are out of use\n",
		       ACTMEM_PAGE_BYTES, folio_nid(folio), folio_pfn(folio));
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
		poison_tell(NULL, 0, folio);
	}
	/* It outlives the module. */
	actmem_page_note(folio, 0);
	atomic_long_inc(&quarantined);
}

/*
 * The kernel marks and counts what it has been told of. Of what only we have heard it
 * is told now. False if the small page is none of @folio.
 */
static bool poison_mark(struct folio *folio, unsigned long pfn)
{
	if (pfn - folio_pfn(folio) >= folio_nr_pages(folio))
		return false;
	if (IS_ENABLED(CONFIG_MEMORY_FAILURE) && !PageHWPoison(pfn_to_page(pfn)))
		memory_failure(pfn, 0);
	return true;
}

/* True if it is out of use, by now or since before. */
static bool poison_check_slot(struct actmem_region *region, unsigned long index, unsigned long pfn)
{
	struct folio *folio = actmem_slot_get(region, index);
	bool marked;

	if (!folio)
		return false;
	if (IS_ERR(folio))
		return true;
	marked = pfn == ANY_PFN ? actmem_page_has_failed(folio) : poison_mark(folio, pfn);
	if (marked && actmem_slot_poison(region, index, folio))
		poison_tell(region, index, folio);
	folio_put(folio);
	return marked;
}

static void poison_check_region(struct actmem_region *region, unsigned long pfn)
{
	/* Where its struct would be: it may be a page of any kind, or gone by now. */
	const void *wanted = pfn == ANY_PFN ? NULL : pfn_to_page(round_down(pfn, HPAGE_PMD_NR));
	unsigned long i;

	for (i = 0; i < region->page_count; i++) {
		if (!wanted || READ_ONCE(region->folios[i]) == wanted)
			poison_check_slot(region, i, pfn);
		if (!(i % BATCH_SLOTS))
			cond_resched();
	}
}

static void poison_check_regions(unsigned long pfn)
{
	struct actmem_region *region;
	u64 id = 0;

	while ((region = actmem_region_next(&id))) {
		poison_check_region(region, pfn);
		actmem_region_put(region);
	}
}

static bool poison_unmap(void)
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

static void poison_settle_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(settler, poison_settle_work);

static void poison_settle_work(struct work_struct *work)
{
	if (!poison_unmap())
		schedule_delayed_work(&settler, SETTLE_INTERVAL);
}

static bool poison_next_report(unsigned long *pfn)
{
	unsigned long flags;
	bool found;

	raw_spin_lock_irqsave(&reports_lock, flags);
	found = kfifo_get(&reports, pfn);
	raw_spin_unlock_irqrestore(&reports_lock, flags);
	return found;
}

static void poison_report_work(struct work_struct *work)
{
	unsigned long pfn;

	while (poison_next_report(&pfn))
		poison_check_regions(pfn);
	if (xchg(&reports_lost, false))
		poison_check_regions(ANY_PFN);
	poison_settle_work(NULL);
}

static DECLARE_WORK(reporter, poison_report_work);

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

	failed = poison_check_slot(region, index, ANY_PFN);
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
	spin_lock(&region->lock);
	if (region->folios[index])
		why->node = folio_nid(region->folios[index]);
	spin_unlock(&region->lock);
}

/*
 * The kernel has no list of those who want to know of errors. It has a tracepoint,
 * ras:memory_failure_event, that is there for monitors and is passed whatever comes of
 * the page: it is hooked as tracers do it. The operation
 * error_remove_folio is for pages on the LRU lists alone, which these are not. Machine
 * checks are heard of by their decode chain, as the kernel does not treat all that go
 * through there, such as those in the middle of a copy that survives them.
 */
static struct tracepoint *memory_failure_event;

static void poison_memory_failure(void *data, unsigned long pfn, int type, int result)
{
	actmem_poison_report(pfn);
}

static int poison_machine_check(struct notifier_block *block, unsigned long value, void *data)
{
	struct mce *mce = data;

	if (!mce || mce_is_correctable(mce) || !mce_usable_address(mce))
		return NOTIFY_DONE;
	/* As newer kernels have it: other addresses of theirs are not the machine's. */
	if ((boot_cpu_data.x86_vendor == X86_VENDOR_AMD ||
	     boot_cpu_data.x86_vendor == X86_VENDOR_HYGON) &&
	    !(mce->status & MCI_STATUS_POISON))
		return NOTIFY_DONE;
	actmem_poison_report((mce->addr & GENMASK_ULL(boot_cpu_data.x86_phys_bits - 1, 0)) >>
			     PAGE_SHIFT);
	return NOTIFY_OK;
}

/* After those of the kernel, which may have marked the page by then. */
static struct notifier_block machine_check_block = {
	.notifier_call = poison_machine_check,
	.priority = MCE_PRIO_LOWEST,
};

static void poison_find_event(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "memory_failure_event"))
		memory_failure_event = tracepoint;
}

static int poison_hook_event(void)
{
	int err;

	actmem_check_memory_failure_probe(poison_memory_failure);
	for_each_kernel_tracepoint(poison_find_event, NULL);
	if (!memory_failure_event) {
		pr_warn("actmem: this kernel does not tell of errors in memory (CONFIG_MEMORY_FAILURE): machine checks alone are heard of\n");
		return 0;
	}
	err = tracepoint_probe_register(memory_failure_event, poison_memory_failure, NULL);
	if (err)
		memory_failure_event = NULL;
	return err;
}

static void poison_unhook(void)
{
	if (IS_ENABLED(CONFIG_X86_MCE))
		mce_unregister_decode_chain(&machine_check_block);
	if (memory_failure_event)
		tracepoint_probe_unregister(memory_failure_event, poison_memory_failure, NULL);
	/* Also for who is in it at this moment. */
	tracepoint_synchronize_unregister();
}

int actmem_poison_init(void)
{
	int err = poison_hook_event();

	if (!err && IS_ENABLED(CONFIG_X86_MCE))
		mce_register_decode_chain(&machine_check_block);
	return err;
}

/* No region is left. */
void actmem_poison_stop(void)
{
	poison_unhook();
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
