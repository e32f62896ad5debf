// SPDX-License-Identifier: GPL-2.0
/*
 * Where the bytes of a dma-buf are: small page by small page, and as the segments that
 * a device takes.
 */
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>

#include "actmem.h"
#include "dmabuf.h"

/* The small page at @offset, and how many bytes lie one behind the other from there on. */
struct page *actmem_dmabuf_page(const struct export *export, u64 offset, u64 *length)
{
	u64 within = offset % export->unit_bytes;

	*length = export->unit_bytes - within;
	return export->pages[offset / export->unit_bytes] + within / PAGE_SIZE;
}

/* The same beyond the unit, up to so many bytes. */
static struct page *run_at(const struct export *export, u64 offset, u64 most, u64 *length)
{
	u64 more, end = export->count * ACTMEM_PAGE_BYTES;
	struct page *page = actmem_dmabuf_page(export, offset, length), *next;

	while (*length < most && offset + *length < end) {
		next = actmem_dmabuf_page(export, offset + *length, &more);
		if (page_to_phys(next) != page_to_phys(page) + *length)
			break;
		*length += more;
	}
	*length = min(*length, most);
	return page;
}

/* The most that a segment may have: whole pages of ours, if so much is allowed. */
static u64 segment_limit(struct device *dev)
{
	u64 limit = min_t(u64, dma_get_max_seg_size(dev), dma_max_mapping_size(dev));

	return round_down(limit, limit < ACTMEM_PAGE_BYTES ? PAGE_SIZE : ACTMEM_PAGE_BYTES);
}

/* The segment that begins at @offset, for a device with these limits. */
static struct page *segment_at(const struct export *export, u64 offset, u64 limit, u64 boundary,
			       u64 *length)
{
	u64 address = page_to_phys(actmem_dmabuf_page(export, offset, length));
	u64 most = min(limit - 1, boundary - (address & boundary)) + 1;

	return run_at(export, offset, most, length);
}

/* The table is made of runs of pages: a list of the small ones could take GiBs. */
int actmem_dmabuf_table(const struct export *export, struct device *dev, struct sg_table *table)
{
	u64 limit = segment_limit(dev), boundary = dma_get_seg_boundary(dev);
	u64 offset, length, end = export->count * ACTMEM_PAGE_BYTES;
	struct scatterlist *segment;
	struct page *page;
	u64 count = 0;
	int err;

	if (!limit || boundary < PAGE_SIZE - 1)
		return -EINVAL;
	for (offset = 0; offset < end; offset += length) {
		segment_at(export, offset, limit, boundary, &length);
		count++;
		cond_resched();
	}
	if (count > UINT_MAX)
		return -EINVAL;
	err = sg_alloc_table(table, count, GFP_KERNEL);
	if (err)
		return err;
	segment = table->sgl;
	for (offset = 0; offset < end; offset += length) {
		page = segment_at(export, offset, limit, boundary, &length);
		sg_set_page(segment, page, length, 0);
		segment = sg_next(segment);
		cond_resched();
	}
	return 0;
}
