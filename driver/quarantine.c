// SPDX-License-Identifier: GPL-2.0
/* Keeps pages with hardware errors out of use. poison.c handles reports of such errors. */
#include <linux/pid.h>

#include "actmem.h"

/*
 * True after the first machine check of any kind. Before that, a pool hands out a zeroed page
 * without checking its 512 struct pages. The check would cost more than all other work for handing
 * out the page.
 */
bool actmem_quarantine_expected;

/* Returns true if the kernel has marked (PG_hwpoison) any small page of @folio. */
bool actmem_quarantine_is_needed(struct folio *folio)
{
	long i;

	for (i = 0; i < folio_nr_pages(folio); i++)
		if (PageHWPoison(folio_page(folio, i)))
			return true;
	return false;
}

/* Logs and counts the error. @region is NULL if the page is in no region. */
void actmem_quarantine_log(struct actmem_region *region, unsigned long index, struct folio *folio)
{
	if (region) {
		spin_lock(&region->lock);
		pr_err("actmem: hardware error in the page at offset %llu of region %llu '%s', made by process %d: %llu bytes of node %d at pfn %#lx are out of use\n",
		       index * ACTMEM_PAGE_BYTES, region->id, region->name, pid_nr(region->pid),
		       ACTMEM_PAGE_BYTES, folio_nid(folio), folio_pfn(folio));
		spin_unlock(&region->lock);
	} else {
		pr_err("actmem: hardware error in a page of no region: %llu bytes of node %d at pfn %#lx are out of use\n",
		       ACTMEM_PAGE_BYTES, folio_nid(folio), folio_pfn(folio));
	}
	/*
	 * Increment last, so that a reader who sees the new number also finds the message in the
	 * log.
	 */
	atomic_long_inc(&actmem_nodes[folio_nid(folio)].poisoned);
}

/*
 * Takes over a page and never drops the driver's references, so that the page is never reused. If
 * the page is not from a pool, its memory cgroup stays charged, because the kernel exports no
 * function that uncharges a page before the page is freed.
 */
void actmem_quarantine_page(struct folio *folio)
{
	/* A page that was poisoned in its region has already been logged and counted. */
	if (!(actmem_page_notes(folio) & ACTMEM_PAGE_POISONED))
		actmem_quarantine_log(NULL, 0, folio);
	actmem_page_notes_set(folio, 0);
}
