// SPDX-License-Identifier: GPL-2.0
/*
 * Handles pages with hardware errors, which the decode chain of machine checks reports. The chain
 * also delivers errors that the firmware reports, because the kernel logs such errors as machine
 * checks (apei_mce_report_mem_error()).
 *
 * The driver handles an error for the whole huge page: the driver unmaps this page everywhere, and
 * lookups no longer return the page. When the page leaves its region, the driver keeps the page
 * until the next boot, so that the page allocator cannot reuse it.
 *
 * The kernel treats pages of a driver as opaque and only marks the small page (PG_hwpoison). The
 * kernel also marks pages without a machine check: in tests (MADV_HWPOISON, hwpoison-inject), and
 * when an administrator takes a page offline, for example after corrected errors. The driver
 * therefore checks each page for the mark when it zeroes the page, and before it returns the page
 * to the page allocator. These checks cost little, because the allocator accesses the same struct
 * pages anyway. After the first machine check, the driver also checks each page that it takes from
 * a pool.
 *
 * poison_report() does not find a page that is in a pool, or that a task is adding to a slot. If
 * the page is in a pool, the driver finds the kernel's mark later. If a task was adding the page to
 * a slot, the hardware reports the error again at the next touch.
 */
#include <linux/memory_hotplug.h>
#include <linux/module.h>
#include <linux/notifier.h>

#include <asm/mce.h>

#include "actmem.h"
#include "compat/compat.h"

/* The kernel logs this bank number for errors that the firmware reports, which have no bank. */
#define FIRMWARE_BANK	0xff

/*
 * Makes the kernel mark and count the error. The kernel itself marks pages only for some of the
 * errors on the chain. The kernel does not mark a page if _copy_mc_to_iter(), which this driver
 * calls, has recovered from the error.
 */
static void poison_mark(unsigned long pfn)
{
	if (IS_ENABLED(CONFIG_MEMORY_FAILURE) && !PageHWPoison(pfn_to_page(pfn)))
		memory_failure(pfn, 0);
}

/*
 * Handles an error in this small page, which may belong to any part of the kernel. The region's id
 * in the page and the page's index can change at any time, so actmem_slot_poison() verifies that
 * the slot has the page.
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
		actmem_quarantine_log(region, index, folio);
	}
	actmem_region_put(region);
}

/* Fills in @why for a poisoned page. */
void actmem_poison_explain(struct actmem_region *region, unsigned long index,
			   struct actmem_why *why)
{
	struct folio *folio;

	actmem_why_clear(why);
	why->reason = ACTMEM_WHY_POISON;
	why->wanted = index * ACTMEM_PAGE_BYTES;
	spin_lock(&region->lock);
	folio = xa_load(&region->slots, index);
	if (folio && !xa_is_value(folio))
		why->node = folio_nid(folio);
	spin_unlock(&region->lock);
}

/* Returns true if the logged address is a physical address of memory. */
static bool poison_mce_names_memory(struct mce *mce)
{
	if (mce->bank == FIRMWARE_BANK)
		return mce->status & MCI_STATUS_ADDRV;
	if (!mce_usable_address(mce))
		return false;
	if (boot_cpu_data.x86_vendor != X86_VENDOR_AMD &&
	    boot_cpu_data.x86_vendor != X86_VENDOR_HYGON)
		return true;
	/*
	 * On AMD, mce_usable_address() of Linux 6.1 also accepts addresses that are not physical.
	 */
	return mce->status & (MCI_STATUS_POISON | MCI_STATUS_PADDRV);
}

/* The kernel calls this function in a worker, so the function may sleep. */
static int poison_machine_check(struct notifier_block *block, unsigned long value, void *data)
{
	struct mce *mce = data;
	unsigned long pfn;

	WRITE_ONCE(actmem_quarantine_expected, true);
	if (!mce || mce_is_correctable(mce) || !poison_mce_names_memory(mce))
		return NOTIFY_DONE;
	pfn = (mce->addr & GENMASK_ULL(boot_cpu_data.x86_phys_bits - 1, 0)) >> PAGE_SHIFT;
	/* Offline memory has no initialized struct pages. */
	if (!pfn_to_online_page(pfn))
		return NOTIFY_DONE;
	poison_report(pfn);
	return NOTIFY_OK;
}

/* Lowest priority: run after the kernel's notifiers, which may mark the page. */
static struct notifier_block machine_check_block = {
	.notifier_call = poison_machine_check,
	.priority = MCE_PRIO_LOWEST,
};

void actmem_poison_init(void)
{
	if (IS_ENABLED(CONFIG_X86_MCE))
		mce_register_decode_chain(&machine_check_block);
}

/* Waits until no report is in progress. */
void actmem_poison_exit(void)
{
	if (IS_ENABLED(CONFIG_X86_MCE))
		mce_unregister_decode_chain(&machine_check_block);
}
