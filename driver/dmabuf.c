// SPDX-License-Identifier: GPL-2.0
/*
 * Export of a range of a region as a dma-buf. Every page must be present. The dma-buf holds a
 * reference to each page, so that the page can be neither discarded nor moved. Importers therefore
 * need no notification of moves.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/slab.h>

#include "actmem.h"
#include "compat/compat.h"

/*
 * Use MODULE_INFO(), because MODULE_IMPORT_NS() takes an identifier in some kernels, and a string
 * in others.
 */
MODULE_INFO(import_ns, "DMA_BUF");

/* The private data of a dma-buf: @count pages of the region of @file, from page @first. */
struct export {
	struct file *file;
	unsigned long first;
	unsigned long count;
	struct folio *folios[];
};

/*
 * Fills the scatter-gather table. Each entry is a part of a page. All parts have the same
 * power-of-two length and are aligned to this length, so that no part crosses the device's segment
 * boundary.
 */
static int dmabuf_cut(const struct export *export, struct device *dev, struct sg_table *table)
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

/*
 * Maps the pages for DMA in both directions, as other exporters do. CPU accesses need no
 * synchronization, because DMA is coherent on x86. With a bounce buffer (swiotlb), CPU and device
 * would not see each other's writes without synchronization. So this function refuses devices that
 * would use bounce buffers: the longest DMA mapping of such a device is shorter than a page of the
 * region.
 */
static struct sg_table *dmabuf_map(struct dma_buf_attachment *attachment,
				   enum dma_data_direction direction)
{
	struct sg_table *table;
	int err;

	if (dma_max_mapping_size(attachment->dev) < ACTMEM_PAGE_BYTES)
		return ERR_PTR(-EOPNOTSUPP);
	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return ERR_PTR(-ENOMEM);
	err = dmabuf_cut(attachment->dmabuf->priv, attachment->dev, table);
	if (err)
		goto free;
	err = dma_map_sgtable(attachment->dev, table, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
	if (err)
		goto free;
	return table;

free:
	sg_free_table(table);
	kfree(table);
	return ERR_PTR(err);
}

static void dmabuf_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			 enum dma_data_direction direction)
{
	dma_unmap_sgtable(attachment->dev, table, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
	sg_free_table(table);
	kfree(table);
}

static void dmabuf_free(struct export *export)
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
	dmabuf_free(dmabuf->priv);
}

static const struct dma_buf_ops dmabuf_ops = {
	.map_dma_buf = dmabuf_map,
	.unmap_dma_buf = dmabuf_unmap,
	.release = dmabuf_release,
};

/*
 * Takes a reference to each page. Fails with ENODATA at a missing page, because only POPULATE and
 * page faults are allowed to allocate and charge pages.
 */
static int dmabuf_take_pages(struct export *export, unsigned long count)
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

static struct file *dmabuf_make(void *context)
{
	const struct export_request *request = context;
	unsigned long count = request->arg.length / ACTMEM_PAGE_BYTES;
	DEFINE_DMA_BUF_EXPORT_INFO(about);
	struct dma_buf *dmabuf;
	struct export *export;
	int err;

	export = kvzalloc(struct_size(export, folios, count), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!export)
		return ERR_PTR(-ENOMEM);
	export->file = get_file(request->file);
	export->first = request->arg.offset / ACTMEM_PAGE_BYTES;
	about.ops = &dmabuf_ops;
	about.size = request->arg.length;
	about.flags = O_RDWR;
	about.priv = export;
	err = dmabuf_take_pages(export, count);
	dmabuf = err ? ERR_PTR(err) : dma_buf_export(&about);
	if (!IS_ERR(dmabuf))
		return dmabuf->file;
	dmabuf_free(export);
	return ERR_CAST(dmabuf);
}

int actmem_dmabuf_export(struct file *file, void __user *user)
{
	struct actmem_region *region = actmem_file_region(file);
	struct export_request request = { .file = file };
	struct actmem_ioctl_export *arg = &request.arg;
	int err;

	err = actmem_argument_fetch(arg, sizeof(*arg), sizeof(*arg), user);
	if (err)
		return err;
	if (!region)
		return -ENODATA;
	if (arg->flags || arg->reserved ||
	    !actmem_region_has_range(region, arg->offset, arg->length))
		return -EINVAL;
	if (!(file->f_mode & FMODE_READ) || !(file->f_mode & FMODE_WRITE))
		return -EBADF;
	return actmem_argument_answer_with_file(user, arg, sizeof(*arg), &arg->fd, dmabuf_make,
						&request);
}
