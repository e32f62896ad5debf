/* SPDX-License-Identifier: GPL-2.0 */
/* What dmabuf.c and dmabuf_table.c know of a dma-buf. */
#ifndef _ACTMEM_DMABUF_H
#define _ACTMEM_DMABUF_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

struct device;
struct file;
struct page;
struct sg_table;

/**
 * struct export - what a dma-buf is of
 * @file: of the region
 * @first: index of the first page
 * @count: pages
 * @unit_bytes: that lie one behind the other in memory, at least
 * @units: how many of these
 * @writable: by whoever has it; so it counts as a shared mapping that is
 * @lock: see there; taken under the reservation lock of the dma-buf
 * @attachments: of devices
 * @pages: where each unit begins, with a reference of ours
 */
struct export {
	struct file *file;
	unsigned long first;
	unsigned long count;
	u64 unit_bytes;
	unsigned long units;
	bool writable;
	/* Protects what follows, and what is in there. */
	struct mutex lock;
	struct list_head attachments;
	struct page *pages[];
};

struct page *actmem_dmabuf_page(const struct export *export, u64 offset, u64 *length);
int actmem_dmabuf_table(const struct export *export, struct device *dev, struct sg_table *table);

#endif /* _ACTMEM_DMABUF_H */
