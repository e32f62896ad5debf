// SPDX-License-Identifier: GPL-2.0
/*
 * Pages in which the hardware has erred, as the decode chain of machine checks tells:
 * of what processors report, and of what firmware does, which the kernel logs as a
 * machine check (apei_mce_report_mem_error()).
 *
 * The unit is the huge page: it is unmapped everywhere, nobody is given it any more, and
 * when it leaves its region it is kept for good, so that the page allocator cannot hand
 * it out.
 *
 * The kernel takes such pages to belong to a driver, and only marks the small page
 * (PG_hwpoison). It also marks pages of which no machine check tells: when the
 * administrator takes one offline, as some do after corrected errors, and in tests
 * (MADV_HWPOISON, hwpoison-inject). So each page is looked at before it goes to another
 * owner: when it is zeroed, when it goes back to the page allocator, which goes through
 * its structs as well, and, once there has been a machine check, when a pool lends it.
 *
 * A page that is in a pool, or on its way into its slot, is not found here. In the pool
 * the kernel's mark is found; in the slot the next touch reports the error again.
 */
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/pid.h>

#include <asm/mce.h>

#include "actmem.h"
#include "compat/compat.h"

/* The bank in what is logged for the firmware, which has none. */
#define FIRMWARE_BANK	0xff

static bool suspected;

/*
 * Whether there has been a machine check of any kind. Before, looking at the 512 structs
 * of a page that is ready would cost more than all else of lending it, for nothing.
 */
bool actmem_poison_is_suspected(void)
{
	return READ_ONCE(suspected);
}

/* Whether the kernel has marked any of its small pages. */
bool actmem_page_has_failed(struct folio *folio)
{
	long i;

	for (i = 0; i < folio_nr_pages(folio); i++)
		if (PageHWPoison(folio_page(folio, i)))
			return true;
	return false;
}

/* @region is NULL if it is in none. */
static void poison_tell(const struct actmem_region *region, unsigned long index,
			struct folio *folio)
{
	if (region)
		pr_err("actmem: hardware error in the page at offset %llu of region %llu '%s', made by process %d: %llu bytes of node %d at pfn %#lx are out of use\n",
		       index * ACTMEM_PAGE_BYTES, region->id, region->name, pid_nr(region->pid),
		       ACTMEM_PAGE_BYTES, folio_nid(folio), folio_pfn(folio));
	else
		pr_err("actmem: hardware error in a page of no region: %llu bytes of node %d at pfn %#lx are out of use\n",
		       ACTMEM_PAGE_BYTES, folio_nid(folio), folio_pfn(folio));
	/* Last: whoever sees the number finds the rest done. */
	atomic_long_inc(&actmem_nodes[folio_nid(folio)].poisoned);
}

/*
 * Takes over a page with its reference, which stays, so that nobody is ever given it; a
 * second one keeps unpoison-pfn away, as slots.c says. The charge stays, too, if the
 * page is not a pool's: no function is exported by which a memory cgroup would have it
 * back before the page is free.
 */
void actmem_quarantine(struct folio *folio)
{
	/* Otherwise it has been told of, and counted, in its region. */
	if (!(actmem_page_notes(folio) & ACTMEM_PAGE_POISONED))
		poison_tell(NULL, 0, folio);
	actmem_page_note(folio, 0);
	folio_get(folio);
}

/*
 * The kernel marks and counts only some of the errors that the chain tells of: not one
 * that a copy of ours has survived.
 */
static void poison_mark(unsigned long pfn)
{
	if (IS_ENABLED(CONFIG_MEMORY_FAILURE) && !PageHWPoison(pfn_to_page(pfn)))
		memory_failure(pfn, 0);
}

/*
 * There is an error in this small page, whoever's it is. Its notes and index may change
 * at any time: the slot decides whether the page is the region's.
 */
static void poison_report(unsigned long pfn)
{
	struct folio *folio = page_folio(pfn_to_page(round_down(pfn, HPAGE_PMD_NR)));
	unsigned long index = READ_ONCE(folio->index) >> ACTMEM_PAGE_ORDER;
	struct actmem_region *region;
	int err;

	region = actmem_region_find(actmem_page_notes(folio) >> ACTMEM_PAGE_ID_SHIFT);
	if (!region)
		return;
	err = actmem_slot_poison(region, index, folio);
	if (err != -ENOENT)
		actmem_slot_unmap_poisoned(region, index, folio);
	if (!err) {
		poison_mark(pfn);
		poison_tell(region, index, folio);
	}
	actmem_region_put(region);
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

/* Whether the address is one of the machine's memory. */
static bool mce_names_memory(struct mce *mce)
{
	if (mce->bank == FIRMWARE_BANK)
		return mce->status & MCI_STATUS_ADDRV;
	if (!mce_usable_address(mce))
		return false;
	if (boot_cpu_data.x86_vendor != X86_VENDOR_AMD &&
	    boot_cpu_data.x86_vendor != X86_VENDOR_HYGON)
		return true;
	/* Others of theirs are not the machine's, but Linux 6.1 takes them for usable. */
	return mce->status & (MCI_STATUS_POISON | MCI_STATUS_PADDRV);
}

/* In a worker of the kernel's, which may sleep. */
static int poison_machine_check(struct notifier_block *block, unsigned long value, void *data)
{
	struct mce *mce = data;
	unsigned long pfn;

	WRITE_ONCE(suspected, true);
	if (!mce || mce_is_correctable(mce) || !mce_names_memory(mce))
		return NOTIFY_DONE;
	pfn = (mce->addr & GENMASK_ULL(boot_cpu_data.x86_phys_bits - 1, 0)) >> PAGE_SHIFT;
	/* Memory that is not online has structs that nobody has initialized. */
	if (!pfn_to_online_page(pfn))
		return NOTIFY_DONE;
	poison_report(pfn);
	return NOTIFY_OK;
}

/* After those of the kernel, which may have marked the page by then. */
static struct notifier_block machine_check_block = {
	.notifier_call = poison_machine_check,
	.priority = MCE_PRIO_LOWEST,
};

void actmem_poison_init(void)
{
	if (IS_ENABLED(CONFIG_X86_MCE))
		mce_register_decode_chain(&machine_check_block);
}

/* Waits for a report that is being dealt with. */
void actmem_poison_exit(void)
{
	if (IS_ENABLED(CONFIG_X86_MCE))
		mce_unregister_decode_chain(&machine_check_block);
}
