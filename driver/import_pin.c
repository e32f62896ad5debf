// SPDX-License-Identifier: GPL-2.0
/*
 * Pinning the pages of a file that is imported, and letting go of them.
 *
 * The pages are had as the caller would have them, by mapping the file in its
 * address space for an instant: so it is the file system that allocates, zeroes,
 * places and charges what is missing, by its own rules, on every kernel alike.
 * Another thread may map something else there meanwhile, so that each page is
 * checked to be the one of the file.
 */
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched/signal.h>

#include "actmem.h"
#include "compat/compat.h"
#include "import.h"

/* Whether the page is that of the unit, as the file has it now. */
static bool belongs(const struct actmem_import *import, unsigned long unit, struct page *page)
{
	unsigned long expected = import->first + (unit << import->unit_order);
	struct folio *folio = page_folio(page);

	if (READ_ONCE(folio->mapping) != import->mapping)
		return false;
	if (import->unit_order)
		return actmem_hugetlb_index(folio) == expected;
	return folio->index + folio_page_idx(folio, page) == expected;
}

/* Enters pages that have been pinned one by one, from the unit on. */
static int enter_batch(struct actmem_import *import, unsigned long unit, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct folio *folio = page_folio(import->batch[i]);

		if (!belongs(import, unit + i, import->batch[i])) {
			unpin_user_pages(import->batch + i, count - i);
			return -ESTALE;
		}
		import->folios[unit + i] = folio;
		if (!actmem_is_first_unit(import, unit + i))
			unpin_user_page(import->batch[i]);
	}
	return 0;
}

static int pin_error(int err, u64 wanted, u64 available, struct actmem_why *why)
{
	if (fatal_signal_pending(current))
		return -EINTR;
	if (err == -EHWPOISON)
		return actmem_import_failed(why, -EIO, wanted, available);
	/* What would be SIGBUS to who touches it. */
	if (err == -EFAULT || err == -ENOMEM || !err)
		return actmem_import_failed(why, -ENOMEM, wanted, available);
	return err;
}

/* Pins what is mapped at the address; what it has entered, it leaves there. */
static int pin_units(struct actmem_region *region, unsigned long address, struct actmem_why *why)
{
	struct actmem_import *import = region->import;
	unsigned long unit = 0, units = actmem_unit_count(region);
	size_t unit_bytes = PAGE_SIZE << import->unit_order;
	u64 bytes = region->page_count * ACTMEM_PAGE_BYTES;
	int pinned, err;

	while (unit < units) {
		unsigned long count = 1;

		if (!import->unit_order)
			count = min_t(unsigned long, units - unit, ACTMEM_IMPORT_BATCH);
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
		pinned = pin_user_pages_fast(address + unit * unit_bytes, count,
					     FOLL_WRITE | FOLL_LONGTERM, import->batch);
		if (pinned <= 0)
			return pin_error(pinned, bytes, unit * unit_bytes, why);
		err = enter_batch(import, unit, pinned);
		if (err)
			return actmem_import_failed(why, err, bytes, unit * unit_bytes);
		unit += pinned;
	}
	return 0;
}

/* They were written to behind the file's back. */
void actmem_import_unpin_batch(struct actmem_import *import, unsigned int count)
{
	unpin_user_pages_dirty_lock(import->batch, count, true);
}

/* Takes the pages of a block out of the table: so many are in import->batch. */
unsigned int actmem_import_clear(struct actmem_import *import, unsigned long first)
{
	unsigned long unit, end = first + actmem_units_of_block(import);
	unsigned int count = 0;

	for (unit = first; unit < end; unit++)
		if (import->folios[unit] && actmem_is_first_unit(import, unit))
			import->batch[count++] = folio_page(import->folios[unit], 0);
	memset(import->folios + first, 0, actmem_units_of_block(import) * sizeof(*import->folios));
	return count;
}

void actmem_import_unpin(struct actmem_region *region)
{
	struct actmem_import *import = region->import;
	unsigned long unit, units = actmem_unit_count(region);

	for (unit = 0; unit < units; unit += actmem_units_of_block(import)) {
		actmem_import_unpin_batch(import, actmem_import_clear(import, unit));
		cond_resched();
	}
}

int actmem_import_pin(struct actmem_region *region, struct actmem_why *why)
{
	struct actmem_import *import = region->import;
	u64 bytes = region->page_count * ACTMEM_PAGE_BYTES;
	unsigned long address;
	int err;

	address = vm_mmap(import->file, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			  import->first << PAGE_SHIFT);
	if (IS_ERR_VALUE(address)) {
		err = (int)address;
		if (err == -ENOMEM || err == -EPERM)
			actmem_import_failed(why, err, bytes, 0);
		return err;
	}
	err = pin_units(region, address, why);
	/* If the task is killed, this is left to its end. */
	vm_munmap(address, bytes);
	if (err)
		actmem_import_unpin(region);
	return err;
}
