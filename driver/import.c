// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of memory that others made: which files will do, counting their pages
 * and giving them back, and where a byte of such a region is.
 *
 * Nothing freezes these pages when they go, as they are not the driver's: their
 * file has references of its own. Whoever else has them pinned is known by the
 * count of pins, which those who merely have a reference are not in. So that no
 * region takes the pin of another for a device's, a page is in one at most.
 */
#include <linux/file.h>
#include <linux/hugetlb.h>
#include <linux/magic.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>

#include "actmem.h"
#include "copy.h"
#include "import.h"

/* A table that is too long is told by an error. */
#define ACTMEM_TABLE_GFP	(GFP_KERNEL_ACCOUNT | __GFP_NOWARN)

static DEFINE_MUTEX(imports_lock);
static LIST_HEAD(imports);

static bool is_hugetlb(const struct inode *inode)
{
	return IS_ENABLED(CONFIG_HUGETLBFS) && inode->i_sb->s_magic == HUGETLBFS_MAGIC;
}

static bool is_shmem(const struct inode *inode)
{
	return IS_ENABLED(CONFIG_SHMEM) && inode->i_sb->s_magic == TMPFS_MAGIC;
}

/* F_SEAL_SEAL of files that cannot be sealed. */
static unsigned int seals_of(struct inode *inode)
{
	return READ_ONCE(*(is_hugetlb(inode) ? &HUGETLBFS_I(inode)->seals :
					       &SHMEM_I(inode)->seals));
}

/*
 * Whether nobody may begin to write to the file any more. F_SEAL_WRITE cannot come
 * while it is imported, F_SEAL_FUTURE_WRITE can at any time.
 */
bool actmem_import_is_sealed(const struct actmem_region *region)
{
	return region->import && seals_of(file_inode(region->import->file)) &
				 (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
}

/* Bytes that pages of the file have, at least. */
static u64 file_page_bytes(const struct inode *inode)
{
	return is_hugetlb(inode) ? inode->i_sb->s_blocksize : PAGE_SIZE;
}

/* Whether the file has the range and will keep it. */
int actmem_import_check(struct file *file, u64 offset, u64 length, struct actmem_why *why)
{
	struct inode *inode = file_inode(file);
	u64 file_bytes = i_size_read(inode);
	unsigned int seals;

	if (!S_ISREG(inode->i_mode) || !(is_hugetlb(inode) || is_shmem(inode)))
		return actmem_import_failed(why, -EINVAL, 0, 0);
	if ((file->f_mode & (FMODE_READ | FMODE_WRITE)) != (FMODE_READ | FMODE_WRITE))
		return -EBADF;
	if (!IS_ALIGNED(offset | length, file_page_bytes(inode)))
		return -EINVAL;
	if (length > file_bytes || offset > file_bytes - length)
		return actmem_import_failed(why, -EINVAL, offset + length, file_bytes);
	seals = seals_of(inode);
	if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) ||
	    !(seals & (F_SEAL_SHRINK | F_SEAL_SEAL)))
		return actmem_import_failed(why, -EPERM, 0, 0);
	return 0;
}

/* Makes the table one of units of the smallest page that there is. */
static int shrink_table(struct actmem_region *region)
{
	struct actmem_import *import = region->import;
	unsigned long unit, units = actmem_unit_count(region);
	unsigned int order = ilog2(actmem_units_of_block(import));
	struct folio **folios;

	for (unit = 0; unit < units && order; unit++) {
		order = min(order, folio_order(import->folios[unit]));
		cond_resched();
	}
	if (import->unit_order || !order)
		return 0;
	units >>= order;
	folios = kvcalloc(units, sizeof(*folios), ACTMEM_TABLE_GFP);
	if (!folios)
		return -ENOMEM;
	for (unit = 0; unit < units; unit++)
		folios[unit] = import->folios[unit << order];
	kvfree(import->folios);
	import->folios = folios;
	import->unit_order = order;
	return 0;
}

static int reserve_nodes(struct actmem_region *region, const unsigned long *pages,
			 struct actmem_why *why)
{
	int node, reserved;

	for_each_node(node) {
		unsigned long left;

		if (actmem_node_reserve_small(node, pages[node]))
			continue;
		left = actmem_node_left(node);
		for_each_node(reserved) {
			if (reserved == node)
				break;
			actmem_node_unreserve_small(reserved, pages[reserved]);
		}
		*why = (struct actmem_why){
			.reason = ACTMEM_WHY_NODE_LIMIT,
			.node = node,
			.wanted = (u64)pages[node] << PAGE_SHIFT,
			.available = left * ACTMEM_PAGE_BYTES,
		};
		return -EDQUOT;
	}
	return 0;
}

/* Counts the region's pages where they are, and says so in its policy. */
static int settle(struct actmem_region *region, struct actmem_why *why)
{
	struct actmem_import *import = region->import;
	unsigned long *pages = kcalloc(nr_node_ids, sizeof(*pages), GFP_KERNEL);
	unsigned long unit, units = actmem_unit_count(region);
	int node, err;

	if (!pages)
		return -ENOMEM;
	for (unit = 0; unit < units; unit++) {
		pages[folio_nid(import->folios[unit])] += 1UL << import->unit_order;
		cond_resched();
	}
	err = reserve_nodes(region, pages, why);
	if (!err) {
		spin_lock(&region->lock);
		actmem_count_held(region, region->page_count);
		for_each_node(node) {
			if (!pages[node])
				continue;
			actmem_count_on_node(region, node, pages[node]);
			node_set(node, region->nodes);
		}
		spin_unlock(&region->lock);
	}
	kfree(pages);
	return err;
}

static bool overlap(const struct actmem_import *one, const struct actmem_import *other)
{
	return one->mapping == other->mapping && one->first < other->first + other->small_pages &&
	       other->first < one->first + one->small_pages;
}

/* False: another region has some of it, be it one that lingers. */
static bool claim(struct actmem_import *import)
{
	struct actmem_import *other;
	bool is_free = true;

	mutex_lock(&imports_lock);
	list_for_each_entry(other, &imports, entry)
		is_free = is_free && !overlap(import, other);
	if (is_free)
		list_add(&import->entry, &imports);
	mutex_unlock(&imports_lock);
	return is_free;
}

/* The region has no page of the file any more. */
static void let_file_go(struct actmem_import *import)
{
	mutex_lock(&imports_lock);
	list_del_init(&import->entry);
	mutex_unlock(&imports_lock);
	mapping_unmap_writable(import->mapping);
	fput(import->file);
}

/* When nobody looks at its table any more. */
void actmem_import_free(struct actmem_region *region)
{
	if (!region->import)
		return;
	kvfree(region->import->exports);
	kvfree(region->import->folios);
	kfree(region->import);
	region->import = NULL;
}

/* Pins the file's pages and counts them. */
static int fill(struct actmem_region *region, struct actmem_why *why)
{
	struct actmem_import *import = region->import;
	int err;

	import->folios = kvcalloc(actmem_unit_count(region), sizeof(*import->folios),
				  ACTMEM_TABLE_GFP);
	import->exports = kvcalloc(region->page_count / import->block_pages,
				   sizeof(*import->exports), ACTMEM_TABLE_GFP);
	if (!import->folios || !import->exports)
		return -ENOMEM;
	err = actmem_import_pin(region, why);
	if (err)
		return err;
	err = shrink_table(region) ?: settle(region, why);
	if (err)
		actmem_import_unpin(region);
	return err;
}

/**
 * actmem_import() - makes a part of a file the memory of a region
 * @region: without any pages, which are reserved for it
 * @file: the file, which actmem_import_check() has let pass
 * @offset: in bytes
 * @why: what was wrong with it
 *
 * Returns 0, or the errors of ACTMEM_IOC_IMPORT; the region has nothing then.
 */
int actmem_import(struct actmem_region *region, struct file *file, u64 offset,
		  struct actmem_why *why)
{
	struct inode *inode = file_inode(file);
	struct actmem_import *import;
	int err;

	/* Whoever has the region can write: the file cannot be sealed against that. */
	if (mapping_map_writable(file->f_mapping))
		return actmem_import_failed(why, -EPERM, 0, 0);
	import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);
	if (!import) {
		mapping_unmap_writable(file->f_mapping);
		return -ENOMEM;
	}
	region->import = import;
	spin_lock_init(&import->map_lock);
	INIT_LIST_HEAD(&import->entry);
	import->file = get_file(file);
	import->mapping = file->f_mapping;
	import->first = offset >> PAGE_SHIFT;
	import->small_pages = ACTMEM_SMALL_PAGES(region->page_count);
	import->map_bytes = file_page_bytes(inode);
	import->unit_order = ilog2(import->map_bytes) - PAGE_SHIFT;
	import->block_pages = max_t(u64, import->map_bytes / ACTMEM_PAGE_BYTES, 1);
	err = claim(import) ? fill(region, why) : actmem_import_failed(why, -EBUSY, 0, 0);
	if (err) {
		let_file_go(import);
		actmem_import_free(region);
	}
	return err;
}

/* Bytes of the smallest page, 0 of a region that was not imported. */
u64 actmem_import_page_bytes(const struct actmem_region *region)
{
	return region->import ? PAGE_SIZE << region->import->unit_order : 0;
}

/* Where the bytes from the offset on are; ESTALE if the file has other ones by now. */
int actmem_import_extent(struct actmem_region *region, u64 offset, struct actmem_extent *extent)
{
	struct actmem_import *import = region->import;
	struct folio *folio = import->folios[offset >> (PAGE_SHIFT + import->unit_order)];

	if (READ_ONCE(folio->mapping) != import->mapping)
		return -ESTALE;
	folio_get(folio);
	extent->folio = folio;
	/* Pages are aligned in their files. */
	extent->offset = (((u64)import->first << PAGE_SHIFT) + offset) & (folio_size(folio) - 1);
	extent->length = folio_size(folio) - extent->offset;
	return 0;
}

/* The page of the region that the small one is in, with a reference; NULL if it is in none. */
struct folio *actmem_import_find(struct actmem_region *region, unsigned long pfn)
{
	struct actmem_import *import = region->import;
	unsigned long unit, end, units = actmem_unit_count(region);
	struct folio *found = NULL;

	for (unit = 0; !found && unit < units; cond_resched()) {
		end = min(unit + ACTMEM_IMPORT_BATCH, units);
		spin_lock(&region->lock);
		for (; !found && unit < end; unit++) {
			struct folio *folio = import->folios[unit];

			if (folio && pfn - folio_pfn(folio) < folio_nr_pages(folio))
				found = folio;
		}
		if (found)
			folio_get(found);
		spin_unlock(&region->lock);
	}
	return found;
}

/* Whether the hardware has erred in one of the region's pages; the kernel marks them. */
bool actmem_import_has_failed(struct actmem_region *region, unsigned long index)
{
	u64 offset = index * ACTMEM_PAGE_BYTES, end = offset + ACTMEM_PAGE_BYTES;
	struct actmem_extent extent;
	bool failed = false;
	size_t length;

	while (!failed && offset < end) {
		/* The file has other pages there: what has become of these is nobody's. */
		if (actmem_import_extent(region, offset, &extent))
			return false;
		length = min_t(u64, extent.length, end - offset);
		failed = copy_is_poisoned(extent.folio, extent.offset, length);
		folio_put(extent.folio);
		offset += length;
	}
	return failed;
}

/* Where the page begins, of a region that has its file still. */
int actmem_import_node(const struct actmem_region *region, unsigned long index)
{
	const struct actmem_import *import = region->import;

	return folio_nid(import->folios[ACTMEM_SMALL_PAGES(index) >> import->unit_order]);
}

/* By anybody but the region, which has one pin. */
static bool is_pinned(struct folio *folio)
{
	if (folio_test_large(folio))
		return atomic_read(&folio->_pincount) > 1;
	/* The same count as of references, with which it may be mistaken. */
	return folio_ref_count(folio) >= 2 * GUP_PIN_COUNTING_BIAS;
}

/* Dma-bufs have references, which are not told from others, and the region with them. */
void actmem_import_count_export(struct actmem_region *region, unsigned long first,
				unsigned long count, int change)
{
	struct actmem_import *import = region->import;
	unsigned long block, last = (first + count - 1) / import->block_pages;

	for (block = first / import->block_pages; block <= last; block++) {
		atomic_add(change, &import->exports[block]);
		cond_resched();
	}
}

/* EINTR if the task is killed meanwhile. */
int actmem_import_usage(struct actmem_region *region, struct actmem_usage *usage)
{
	struct actmem_import *import = region->import;
	unsigned long unit, end, units = actmem_unit_count(region);
	unsigned long units_of_block = actmem_units_of_block(import);
	u64 unit_bytes = PAGE_SIZE << import->unit_order;

	for (unit = 0; unit < units; cond_resched()) {
		if (fatal_signal_pending(current))
			return -EINTR;
		end = min(unit + ACTMEM_IMPORT_BATCH, units);
		spin_lock(&region->lock);
		for (; unit < end; unit++) {
			const atomic_t *exports = &import->exports[unit / units_of_block];
			struct folio *folio = import->folios[unit];

			if (!folio)
				continue;
			if (folio_mapped(folio))
				usage->mapped_bytes += unit_bytes;
			if (is_pinned(folio) || atomic_read(exports))
				usage->pinned_bytes += unit_bytes;
		}
		spin_unlock(&region->lock);
	}
	return 0;
}

static bool block_is_pinned(const struct actmem_import *import, unsigned long first)
{
	unsigned long unit, end = first + actmem_units_of_block(import);

	for (unit = first; unit < end; unit++)
		if (actmem_is_first_unit(import, unit) && is_pinned(import->folios[unit]))
			return true;
	return false;
}

/* True if the block has no pages any more. */
static bool give_block_back(struct actmem_region *region, unsigned long block)
{
	struct actmem_import *import = region->import;
	unsigned long units = actmem_units_of_block(import), first = block * units, unit;
	unsigned int count = 0;
	bool stays;

	spin_lock(&region->lock);
	stays = import->folios[first] && block_is_pinned(import, first);
	if (import->folios[first] && !stays) {
		for (unit = first; unit < first + units; unit++) {
			int node = folio_nid(import->folios[unit]);

			actmem_node_unreserve_small(node, 1UL << import->unit_order);
			actmem_count_on_node(region, node, -(1L << import->unit_order));
		}
		actmem_count_held(region, -(long)import->block_pages);
		actmem_release_reserved(region, import->block_pages);
		count = actmem_import_clear(import, first);
	}
	spin_unlock(&region->lock);
	actmem_import_unpin_batch(import, count);
	return !stays;
}

/*
 * Lets go of every block that nobody else has pinned; true if that was all of
 * them. The region has no file any more, so that nobody maps it either.
 */
bool actmem_import_give_back(struct actmem_region *region)
{
	struct actmem_import *import = region->import;
	unsigned long block, first = 0, end = 0;
	unsigned long last = region->kept_end / import->block_pages;

	for (block = region->kept_first / import->block_pages; block < last; block++) {
		cond_resched();
		if (give_block_back(region, block))
			continue;
		if (!end)
			first = block;
		end = block + 1;
	}
	region->kept_first = first * import->block_pages;
	region->kept_end = end * import->block_pages;
	if (!end)
		let_file_go(import);
	return !end;
}
