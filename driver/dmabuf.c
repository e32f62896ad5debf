// SPDX-License-Identifier: GPL-2.0
/*
 * A range of a region as a dma-buf: the pages, as devices and the kernel come to them
 * (by the tables of dmabuf_table.c), and their life. They stay where they are as long
 * as it lives, so that an importer need not be told of moves.
 *
 * It holds the region's file, and of each of its pages a reference: so none of them is
 * discarded, and all count as pinned. Each attachment has one table of segments for as
 * long as it is there, cut as its device wants them, and one mapping for as long as
 * anybody uses that. Bounce buffers would make copies of what is meant to be shared,
 * so that whoever needs them is refused.
 */
#include <linux/dma-buf.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/iosys-map.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/swiotlb.h>
#include <linux/vmalloc.h>

#include "actmem.h"
#include "compat/compat.h"
#include "copy.h"
#include "dmabuf.h"
#include "import.h"

ACTMEM_IMPORT_DMA_BUF_NS;

/**
 * struct attachment - a device that a dma-buf is attached to
 * @dev: the device
 * @table: the segments
 * @direction: in which they are mapped
 * @users: how often they are mapped, as far as importers know
 * @entry: in the list of the dma-buf's
 */
struct attachment {
	struct device *dev;
	struct sg_table table;
	enum dma_data_direction direction;
	unsigned int users;
	struct list_head entry;
};

static int dmabuf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attached)
{
	struct export *export = dmabuf->priv;
	struct attachment *attachment;
	int err;

	attachment = kzalloc(sizeof(*attachment), GFP_KERNEL);
	if (!attachment)
		return -ENOMEM;
	attachment->dev = attached->dev;
	err = actmem_dmabuf_table(export, attached->dev, &attachment->table);
	if (err) {
		kfree(attachment);
		return err;
	}
	attached->priv = attachment;
	mutex_lock(&export->lock);
	list_add(&attachment->entry, &export->attachments);
	mutex_unlock(&export->lock);
	return 0;
}

static void dmabuf_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attached)
{
	struct attachment *attachment = attached->priv;
	struct export *export = dmabuf->priv;

	mutex_lock(&export->lock);
	list_del(&attachment->entry);
	mutex_unlock(&export->lock);
	/* Or the device could go on to use pages that are somebody else's by then. */
	if (WARN_ON(attachment->users))
		dma_unmap_sgtable(attachment->dev, &attachment->table, attachment->direction, 0);
	sg_free_table(&attachment->table);
	kfree(attachment);
}

/*
 * As the kernel has it where no IOMMU is to translate. Its own function for that,
 * dma_capable(), has come to call one that is not exported.
 */
static bool reaches(struct device *dev, phys_addr_t address, size_t length)
{
	dma_addr_t first = phys_to_dma(dev, address);

	return first != DMA_MAPPING_ERROR &&
	       first + length - 1 <= min_not_zero(dma_get_mask(dev), dev->bus_dma_limit);
}

static bool reaches_all(struct device *dev, const struct sg_table *table)
{
	struct scatterlist *segment;
	unsigned int i;

	for_each_sgtable_sg(table, segment, i) {
		if (!reaches(dev, sg_phys(segment), segment->length))
			return false;
		cond_resched();
	}
	return true;
}

static int check_reach(const struct export *export, struct attachment *attachment)
{
	const struct actmem_region *region = actmem_file_region(export->file);
	struct device *dev = attachment->dev;

	/* It does no DMA. */
	if (!dev->dma_mask)
		return -EINVAL;
	if (actmem_dma_is_translated(dev))
		return 0;
	if (!is_swiotlb_force_bounce(dev) && reaches_all(dev, &attachment->table))
		return 0;
	actmem_bounce_refused(region, dev, is_swiotlb_force_bounce(dev));
	return -EOPNOTSUPP;
}

/* Once for all who want it at the same time. */
static int map_table(const struct export *export, struct attachment *attachment,
		     enum dma_data_direction direction)
{
	int err;

	lockdep_assert_held(&export->lock);
	if (attachment->users) {
		if (attachment->direction != direction &&
		    attachment->direction != DMA_BIDIRECTIONAL)
			return -EBUSY;
		attachment->users++;
		return 0;
	}
	err = check_reach(export, attachment);
	if (!err)
		err = dma_map_sgtable(attachment->dev, &attachment->table, direction, 0);
	if (err)
		return err;
	attachment->direction = direction;
	attachment->users = 1;
	return 0;
}

static struct sg_table *dmabuf_map(struct dma_buf_attachment *attached,
				   enum dma_data_direction direction)
{
	struct export *export = attached->dmabuf->priv;
	struct attachment *attachment = attached->priv;
	int err;

	if (!export->writable && direction != DMA_TO_DEVICE)
		return ERR_PTR(-EACCES);
	mutex_lock(&export->lock);
	err = map_table(export, attachment, direction);
	mutex_unlock(&export->lock);
	return err ? ERR_PTR(err) : &attachment->table;
}

static void dmabuf_unmap(struct dma_buf_attachment *attached, struct sg_table *table,
			 enum dma_data_direction direction)
{
	struct export *export = attached->dmabuf->priv;
	struct attachment *attachment = attached->priv;

	mutex_lock(&export->lock);
	if (!--attachment->users)
		dma_unmap_sgtable(attachment->dev, table, attachment->direction, 0);
	mutex_unlock(&export->lock);
}

static int sync_mapped(struct export *export,
		       void (*sync)(struct device *dev, struct sg_table *table,
				    enum dma_data_direction direction))
{
	struct attachment *attachment;

	mutex_lock(&export->lock);
	list_for_each_entry(attachment, &export->attachments, entry)
		if (attachment->users)
			sync(attachment->dev, &attachment->table, attachment->direction);
	mutex_unlock(&export->lock);
	return 0;
}

static int dmabuf_begin_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction direction)
{
	return sync_mapped(dmabuf->priv, dma_sync_sgtable_for_cpu);
}

static int dmabuf_end_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction direction)
{
	return sync_mapped(dmabuf->priv, dma_sync_sgtable_for_device);
}

/* A mapping of the region's, so that whatever is done to that is done to this. */
static int dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct export *export = dmabuf->priv;

	/* An importer may have come by a file of its own that is open for writing. */
	if (!export->writable && vma->vm_flags & VM_MAYWRITE)
		return -EACCES;
	/* As the kernel has it for regions, by SB_I_NOEXEC, but not for all dma-bufs. */
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;
	actmem_vm_flags_clear(vma, VM_MAYEXEC);
	vma->vm_pgoff += ACTMEM_SMALL_PAGES(export->first);
	vma_set_file(vma, export->file);
	return actmem_map_anywhere(actmem_file_region(export->file), vma);
}

/* The list of small pages lasts no longer than this. */
static int dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct export *export = dmabuf->priv;
	unsigned long i, count = ACTMEM_SMALL_PAGES(export->count);
	struct page **pages;
	void *address;
	u64 length;

	if (count > UINT_MAX)
		return -ENOMEM;
	pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL | __GFP_NOWARN);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		pages[i] = actmem_dmabuf_page(export, (u64)i * PAGE_SIZE, &length);
	address = vmap(pages, count, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	if (!address)
		return -ENOMEM;
	iosys_map_set_vaddr(map, address);
	return 0;
}

static void dmabuf_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	vunmap(map->vaddr);
	iosys_map_clear(map);
}

/* The dma-buf has come to be (1) or has gone (-1). */
static void count_export(const struct export *export, int change)
{
	struct actmem_region *region = actmem_file_region(export->file);

	spin_lock(&region->lock);
	region->exported_pages += change * (long)export->count;
	spin_unlock(&region->lock);
	if (region->import)
		actmem_import_count_export(region, export->first, export->count, change);
}

static void let_go_of_pages(struct export *export)
{
	unsigned long i;

	for (i = 0; i < export->units && export->pages[i]; i++) {
		put_page(export->pages[i]);
		cond_resched();
	}
}

static void free_export(struct export *export)
{
	let_go_of_pages(export);
	if (export->writable)
		mapping_unmap_writable(export->file->f_mapping);
	mutex_destroy(&export->lock);
	fput(export->file);
	kvfree(export);
}

static void dmabuf_release(struct dma_buf *dmabuf)
{
	struct export *export = dmabuf->priv;

	count_export(export, -1);
	free_export(export);
}

static const struct dma_buf_ops writable_ops = {
	.attach = dmabuf_attach,
	.detach = dmabuf_detach,
	.map_dma_buf = dmabuf_map,
	.unmap_dma_buf = dmabuf_unmap,
	.release = dmabuf_release,
	.begin_cpu_access = dmabuf_begin_cpu_access,
	.end_cpu_access = dmabuf_end_cpu_access,
	.mmap = dmabuf_mmap,
	.vmap = dmabuf_vmap,
	.vunmap = dmabuf_vunmap,
};

/* Without vmap, since what the kernel maps it can write; and warns if it fails. */
static const struct dma_buf_ops read_only_ops = {
	.attach = dmabuf_attach,
	.detach = dmabuf_detach,
	.map_dma_buf = dmabuf_map,
	.unmap_dma_buf = dmabuf_unmap,
	.release = dmabuf_release,
	.begin_cpu_access = dmabuf_begin_cpu_access,
	.end_cpu_access = dmabuf_end_cpu_access,
	.mmap = dmabuf_mmap,
};

/* Pages of our own are as large; of those of others, the smallest may be smaller. */
static u64 unit_of(const struct actmem_region *region)
{
	return region->import ? min(actmem_import_page_bytes(region), ACTMEM_PAGE_BYTES) :
				ACTMEM_PAGE_BYTES;
}

static struct export *alloc_export(struct file *file, unsigned long first, unsigned long count,
				   bool writable)
{
	u64 unit_bytes = unit_of(actmem_file_region(file));
	unsigned long units = count * (ACTMEM_PAGE_BYTES / unit_bytes);
	struct export *export;
	int err;

	/* A table that is too long is told by an error. */
	export = kvzalloc(struct_size(export, pages, units), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!export)
		return ERR_PTR(-ENOMEM);
	if (writable) {
		err = actmem_import_is_sealed(actmem_file_region(file)) ? -EPERM :
		      mapping_map_writable(file->f_mapping);
		if (err)
			goto free;
	}
	/*
	 * One of its own, which cannot be mapped as such: of a mapping's file any part
	 * can be mapped in its stead (remap_file_pages), which may be none of these.
	 */
	export->file = dentry_open(&file->f_path, (writable ? O_RDWR : O_RDONLY) | O_LARGEFILE,
				   current_cred());
	if (IS_ERR(export->file)) {
		err = PTR_ERR(export->file);
		goto unmap;
	}
	export->file->private_data = export;
	export->first = first;
	export->count = count;
	export->unit_bytes = unit_bytes;
	export->units = units;
	export->writable = writable;
	mutex_init(&export->lock);
	INIT_LIST_HEAD(&export->attachments);
	return export;

unmap:
	if (writable)
		mapping_unmap_writable(file->f_mapping);
free:
	kvfree(export);
	return ERR_PTR(err);
}

/* EIO if the hardware has erred in it, which of our own pages the slot knows. */
static int take_unit(struct export *export, unsigned long unit, u64 offset,
		     const struct actmem_caller *caller, struct actmem_why *why)
{
	struct actmem_region *region = actmem_file_region(export->file);
	struct actmem_extent extent;
	int err;

	err = actmem_extent_demand(region, offset, caller, why, &extent);
	if (err)
		return err;
	export->pages[unit] = folio_page(extent.folio, extent.offset / PAGE_SIZE);
	if (!region->import || !copy_is_poisoned(extent.folio, extent.offset, export->unit_bytes))
		return 0;
	actmem_poison_explain(region, offset / ACTMEM_PAGE_BYTES, why);
	return -EIO;
}

/* All at once where they are missing; page by page what is discarded meanwhile. */
static int take_pages(struct export *export, const struct actmem_caller *caller,
		      struct actmem_why *why)
{
	struct actmem_region *region = actmem_file_region(export->file);
	u64 offset = export->first * ACTMEM_PAGE_BYTES;
	unsigned long i, done;
	int err;

	err = actmem_populate(region, export->first, export->count, caller, &done, why);
	for (i = 0; !err && i < export->units; i++, offset += export->unit_bytes) {
		err = take_unit(export, i, offset, caller, why);
		if (!err)
			err = actmem_caller_stopped(caller);
		cond_resched();
	}
	return err;
}

/* A dma-buf of so many pages of the region that is open as @file. */
struct dma_buf *actmem_dmabuf_create(struct file *file, unsigned long first, unsigned long count,
				     bool writable, const struct actmem_caller *caller,
				     struct actmem_why *why)
{
	DEFINE_DMA_BUF_EXPORT_INFO(about);
	struct dma_buf *dmabuf;
	struct export *export;
	int err;

	export = alloc_export(file, first, count, writable);
	if (IS_ERR(export))
		return ERR_CAST(export);
	err = take_pages(export, caller, why);
	if (err)
		goto free;
	about.ops = writable ? &writable_ops : &read_only_ops;
	about.size = count * ACTMEM_PAGE_BYTES;
	about.flags = writable ? O_RDWR : O_RDONLY;
	about.priv = export;
	count_export(export, 1);
	dmabuf = dma_buf_export(&about);
	if (!IS_ERR(dmabuf))
		return dmabuf;
	err = PTR_ERR(dmabuf);
	count_export(export, -1);
free:
	free_export(export);
	return ERR_PTR(err);
}
