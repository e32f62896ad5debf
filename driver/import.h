/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of a region that others made: the pages of a memfd, or of a file of
 * hugetlbfs or tmpfs. import.c says which, import_pin.c pins them, import_map.c
 * maps them.
 */
#ifndef _ACTMEM_IMPORT_H
#define _ACTMEM_IMPORT_H

#include <linux/mm.h>
#include <linux/spinlock.h>

#include "actmem.h"

/* So many pages are pinned at a time, and no block of small ones has more. */
#define ACTMEM_IMPORT_BATCH	HPAGE_PMD_NR

/**
 * struct actmem_import - where the pages of a region are
 *
 * A table says of each unit, the size of the smallest page, in which page it is;
 * larger ones are in it as often as they have units. Pages go block by block: of
 * ACTMEM_PAGE_BYTES, or a page of the file if that is larger. Each page that is
 * in a block has one pin for it.
 *
 * @entry: in the list of all imports, for as long as it has a page
 * @file: whose pages they are
 * @mapping: of that file
 * @first: small page of the file that the region begins with
 * @small_pages: that it has
 * @map_bytes: to which mappings of the file have to be aligned
 * @unit_order: small pages in a unit, as a power of two
 * @block_pages: pages of the region in a block
 * @folios: page of each unit, NULL in blocks that are gone
 * @exports: dma-bufs that there are of each block, or of a part of it
 * @batch: pages about to be entered, or to go
 * @map_lock: see there
 * @mappings: of the region, in all processes
 * @holder: file of the region that they hold, as they have only @file themselves
 * @file_ops: operations of mappings of @file
 * @vm_ops: the same, but that mappings are counted
 */
struct actmem_import {
	struct list_head entry;
	struct file *file;
	struct address_space *mapping;
	unsigned long first;
	unsigned long small_pages;
	u64 map_bytes;
	unsigned int unit_order;
	unsigned long block_pages;
	struct folio **folios;
	atomic_t *exports;
	struct page *batch[ACTMEM_IMPORT_BATCH];
	/* Protects what follows. Who lets go of it last may free it. */
	spinlock_t map_lock;
	unsigned long mappings;
	struct file *holder;
	const struct vm_operations_struct *file_ops;
	const struct vm_operations_struct vm_ops;
};

/* Of the whole region. */
static inline unsigned long actmem_unit_count(const struct actmem_region *region)
{
	return ACTMEM_SMALL_PAGES(region->page_count) >> region->import->unit_order;
}

static inline unsigned long actmem_units_of_block(const struct actmem_import *import)
{
	return ACTMEM_SMALL_PAGES(import->block_pages) >> import->unit_order;
}

/* Whether this is where the block has its pin of the page. */
static inline bool actmem_is_first_unit(const struct actmem_import *import, unsigned long unit)
{
	return !(unit % actmem_units_of_block(import)) ||
	       import->folios[unit] != import->folios[unit - 1];
}

/* So that @err can be returned. */
static inline int actmem_import_failed(struct actmem_why *why, int err, u64 wanted, u64 available)
{
	*why = (struct actmem_why){
		.reason = ACTMEM_WHY_IMPORT,
		.node = NUMA_NO_NODE,
		.wanted = wanted,
		.available = available,
	};
	return err;
}

/* import.c */
int actmem_import_check(struct file *file, u64 offset, u64 length, struct actmem_why *why);
int actmem_import(struct actmem_region *region, struct file *file, u64 offset,
		  struct actmem_why *why);
bool actmem_import_is_sealed(const struct actmem_region *region);
bool actmem_import_give_back(struct actmem_region *region);
void actmem_import_free(struct actmem_region *region);
u64 actmem_import_page_bytes(const struct actmem_region *region);
int actmem_import_usage(struct actmem_region *region, struct actmem_usage *usage);
int actmem_import_extent(struct actmem_region *region, u64 offset, struct actmem_extent *extent);
struct folio *actmem_import_find(struct actmem_region *region, unsigned long pfn);
bool actmem_import_has_failed(struct actmem_region *region, unsigned long index);
void actmem_import_count_export(struct actmem_region *region, unsigned long first,
				unsigned long count, int change);
int actmem_import_node(const struct actmem_region *region, unsigned long index);

/* import_pin.c */
int actmem_import_pin(struct actmem_region *region, struct actmem_why *why);
void actmem_import_unpin(struct actmem_region *region);
unsigned int actmem_import_clear(struct actmem_import *import, unsigned long first);
void actmem_import_unpin_batch(struct actmem_import *import, unsigned int count);

/* import_map.c */
int actmem_import_mmap(struct actmem_region *region, struct vm_area_struct *vma);
unsigned long actmem_import_get_unmapped_area(struct file *file, unsigned long address,
					      unsigned long length, unsigned long pgoff,
					      unsigned long flags);

#endif /* _ACTMEM_IMPORT_H */
