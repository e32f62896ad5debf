/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the ways to copy have in common: pieces, each of which lies within one
 * page of either region.
 */
#ifndef _ACTMEM_COPY_H
#define _ACTMEM_COPY_H

#include <linux/mm.h>
#include <linux/types.h>

#include "actmem.h"

struct dma_chan;

/* So many are referenced at a time. */
#define ACTMEM_COPY_PIECES	64

/**
 * struct copy_piece - bytes to copy from one page to another
 * @to: referenced; NULL once nobody needs it any more
 * @from: referenced; NULL if it is missing, which reads as zeros
 * @to_offset: in bytes, from the start of @to
 * @from_offset: the same of @from
 * @length: bytes
 * @copied: bytes from the start that have been copied
 */
struct copy_piece {
	struct folio *to;
	struct folio *from;
	u32 to_offset;
	u32 from_offset;
	u32 length;
	u32 copied;
};

/**
 * struct copy_batch - pieces that follow one upon the other
 * @caller: on whose behalf
 * @channel: that copies, NULL if there is none
 * @count: of @pieces
 * @order: those that a node's CPUs are to copy
 * @pieces: in the order of their offsets
 */
struct copy_batch {
	const struct actmem_caller *caller;
	struct dma_chan *channel;
	unsigned int count;
	u8 order[ACTMEM_COPY_PIECES];
	struct copy_piece pieces[ACTMEM_COPY_PIECES];
};

/* Whether the hardware has been seen to err in these bytes. */
static inline bool copy_is_poisoned(struct folio *folio, u32 offset, u32 length)
{
	u32 page, last = (offset + length - 1) >> PAGE_SHIFT;

	/* Of an imported page of hugetlb, the kernel need not say which part it is. */
	if (PageHWPoison(&folio->page) && folio_test_large(folio) && folio->mapping)
		return true;
	for (page = offset >> PAGE_SHIFT; page <= last; page++)
		if (PageHWPoison(folio_page(folio, page)))
			return true;
	return false;
}

/* copy_dma.c */
int actmem_copy_dma(struct copy_batch *batch);
void actmem_copy_dma_end(struct copy_batch *batch);

#endif /* _ACTMEM_COPY_H */
