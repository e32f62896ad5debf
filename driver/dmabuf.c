// SPDX-License-Identifier: GPL-2.0
/*
 * A range of a region as a dma-buf: of pages that are there, each held by a reference as
 * long as it lives. So none is discarded, and importers need not be told of moves.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/slab.h>

#include "actmem.h"
#include "compat/compat.h"

/* MODULE_IMPORT_NS() takes a word in some kernels, a string in others. */
MODULE_INFO(import_ns, "DMA_BUF");

/* Behind a dma-buf: @count pages of the region that @file is, from page @first. */
struct export {
	struct file *file;
	unsigned long first;
	unsigned long count;
	enum dma_data_direction direction;	/* of mappings; DMA_TO_DEVICE if read-only */
	struct mutex lock;			/* protects @mappings */
	struct list_head mappings;
	struct folio *folios[];
};

/* For a device, which may have further ones at the same time; begin and end_cpu_access sync. */
struct mapping {
	struct sg_table table;
	struct device *dev;
	struct list_head entry;
};

/* Parts of pages, of one power of two and aligned to it, so that none crosses the boundary. */
static int export_cut(const struct export *export, struct device *dev, struct sg_table *table)
{
	u64 last = min_t(u64, dma_get_max_seg_size(dev) - 1, dma_get_seg_boundary(dev));
	u64 bytes = min_t(u64, rounddown_pow_of_two(last + 1), ACTMEM_PAGE_BYTES);
	u64 offset = 0, parts = export->count * (ACTMEM_PAGE_BYTES / bytes);
	struct scatterlist *part;
	unsigned int i;
	int err;

	if (bytes < PAGE_SIZE || parts > UINT_MAX)
		return -EINVAL;
	err = sg_alloc_table(table, parts, GFP_KERNEL);
	if (err)
		return err;
	for_each_sgtable_sg(table, part, i) {
		sg_set_page(part, folio_page(export->folios[offset / ACTMEM_PAGE_BYTES],
					     offset % ACTMEM_PAGE_BYTES / PAGE_SIZE), bytes, 0);
		offset += bytes;
	}
	return 0;
}

static struct sg_table *dmabuf_map(struct dma_buf_attachment *attachment,
				   enum dma_data_direction direction)
{
	struct export *export = attachment->dmabuf->priv;
	struct mapping *mapping;
	int err;

	if (export->direction != DMA_BIDIRECTIONAL && direction != export->direction)
		return ERR_PTR(-EACCES);
	/* swiotlb alone takes no whole page; of its copies, neither side sees the other write. */
	if (dma_max_mapping_size(attachment->dev) < ACTMEM_PAGE_BYTES)
		return ERR_PTR(-EOPNOTSUPP);
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return ERR_PTR(-ENOMEM);
	mapping->dev = attachment->dev;
	err = export_cut(export, mapping->dev, &mapping->table);
	if (!err)
		err = dma_map_sgtable(mapping->dev, &mapping->table, export->direction,
				      DMA_ATTR_SKIP_CPU_SYNC);
	if (err) {
		sg_free_table(&mapping->table);
		kfree(mapping);
		return ERR_PTR(err);
	}
	mutex_lock(&export->lock);
	list_add(&mapping->entry, &export->mappings);
	mutex_unlock(&export->lock);
	return &mapping->table;
}

static void dmabuf_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			 enum dma_data_direction direction)
{
	struct mapping *mapping = container_of(table, struct mapping, table);
	struct export *export = attachment->dmabuf->priv;

	mutex_lock(&export->lock);
	list_del(&mapping->entry);
	mutex_unlock(&export->lock);
	dma_unmap_sgtable(mapping->dev, table, export->direction, DMA_ATTR_SKIP_CPU_SYNC);
	sg_free_table(table);
	kfree(mapping);
}

static int export_sync(struct export *export, typeof(dma_sync_sgtable_for_cpu) sync)
{
	struct mapping *mapping;

	mutex_lock(&export->lock);
	list_for_each_entry(mapping, &export->mappings, entry)
		sync(mapping->dev, &mapping->table, export->direction);
	mutex_unlock(&export->lock);
	return 0;
}

static int dmabuf_begin_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction direction)
{
	return export_sync(dmabuf->priv, dma_sync_sgtable_for_cpu);
}

static int dmabuf_end_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction direction)
{
	return export_sync(dmabuf->priv, dma_sync_sgtable_for_device);
}

/* A mapping of the region's, so that whatever is done to that is done to this. */
static int dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct export *export = dmabuf->priv;

	/* An importer may have come by a file of its own that is open for writing. */
	if (export->direction == DMA_TO_DEVICE && vma->vm_flags & VM_MAYWRITE)
		return -EACCES;
	/* As the kernel has it for regions, by SB_I_NOEXEC, but not for all dma-bufs. */
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;
	actmem_vm_flags_clear(vma, VM_MAYEXEC);
	vma->vm_pgoff += ACTMEM_SMALL_PAGES(export->first);
	vma_set_file(vma, export->file);
	return actmem_map_anywhere(actmem_file_region(export->file), vma);
}

static void export_free(struct export *export)
{
	struct actmem_region *region = actmem_file_region(export->file);
	unsigned long i;

	spin_lock(&region->lock);
	region->exported_pages -= export->count;
	spin_unlock(&region->lock);
	for (i = 0; i < export->count; i++) {
		folio_put(export->folios[i]);
		cond_resched();
	}
	fput(export->file);
	kvfree(export);
}

static void dmabuf_release(struct dma_buf *dmabuf)
{
	export_free(dmabuf->priv);
}

static const struct dma_buf_ops dmabuf_ops = {
	.map_dma_buf = dmabuf_map,
	.unmap_dma_buf = dmabuf_unmap,
	.begin_cpu_access = dmabuf_begin_cpu_access,
	.end_cpu_access = dmabuf_end_cpu_access,
	.mmap = dmabuf_mmap,
	.release = dmabuf_release,
};

/* None is made, or a reader could have the owner pay for pages by way of a dma-buf. */
static int export_take_pages(struct export *export, unsigned long count)
{
	struct actmem_region *region = actmem_file_region(export->file);
	struct folio *folio = NULL;

	while (export->count < count) {
		folio = actmem_slot_get(region, export->first + export->count) ?: ERR_PTR(-ENODATA);
		if (IS_ERR(folio))
			break;
		export->folios[export->count++] = folio;
		cond_resched();
	}
	spin_lock(&region->lock);
	region->exported_pages += export->count;
	spin_unlock(&region->lock);
	return IS_ERR(folio) ? actmem_slot_error(folio) : 0;
}

struct export_request {
	struct file *file;
	struct actmem_ioctl_export arg;
};

static struct file *export_make(void *context)
{
	const struct export_request *request = context;
	unsigned long count = request->arg.length / ACTMEM_PAGE_BYTES;
	DEFINE_DMA_BUF_EXPORT_INFO(about);
	struct dma_buf *dmabuf;
	struct export *export;
	struct file *file;
	int err;

	export = kvzalloc(struct_size(export, folios, count), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!export)
		return ERR_PTR(-ENOMEM);
	about.ops = &dmabuf_ops;
	about.size = request->arg.length;
	about.flags = request->arg.flags & ACTMEM_EXPORT_READ_ONLY ? O_RDONLY : O_RDWR;
	about.priv = export;
	/* One that mmap() refuses: remap_file_pages() would map any part of a mapping's file. */
	file = dentry_open(&request->file->f_path, about.flags | O_LARGEFILE, current_cred());
	if (IS_ERR(file)) {
		kvfree(export);
		return file;
	}
	file->private_data = export;
	export->file = file;
	export->first = request->arg.offset / ACTMEM_PAGE_BYTES;
	export->direction = about.flags == O_RDWR ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
	mutex_init(&export->lock);
	INIT_LIST_HEAD(&export->mappings);
	err = export_take_pages(export, count);
	dmabuf = err ? ERR_PTR(err) : dma_buf_export(&about);
	if (!IS_ERR(dmabuf))
		return dmabuf->file;
	export_free(export);
	return ERR_CAST(dmabuf);
}

int actmem_export(struct file *file, void __user *user)
{
	struct actmem_region *region = actmem_file_region(file);
	struct export_request request = { .file = file };
	struct actmem_ioctl_export *arg = &request.arg;
	int err;

	err = actmem_fetch(arg, sizeof(*arg), sizeof(*arg), user);
	if (err)
		return err;
	if (!region)
		return -ENODATA;
	if (arg->flags & ~ACTMEM_EXPORT_READ_ONLY || arg->reserved ||
	    !actmem_is_range(region, arg->offset, arg->length))
		return -EINVAL;
	if (!(file->f_mode & FMODE_READ) ||
	    (!(arg->flags & ACTMEM_EXPORT_READ_ONLY) && !(file->f_mode & FMODE_WRITE)))
		return -EBADF;
	return actmem_answer_with_file(user, arg, sizeof(*arg), &arg->fd, export_make, &request);
}
