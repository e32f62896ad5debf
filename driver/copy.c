// SPDX-License-Identifier: GPL-2.0
/*
 * Copying from region to region, in batches: the calling task takes references
 * to the pages of both ranges, and allocates those that are missing where the
 * bytes go to, which are charged to it. Then CPUs copy, several in parallel if
 * there is more than one page, or a DMA engine does (copy_dma.c), and every
 * reference is let go of.
 *
 * The helping CPUs are of the node that is written to. A store that bypasses
 * the caches keeps one of a core's few write-combining buffers busy until the
 * line has reached its memory controller, so that it should be near; lines
 * that are read can be fetched ahead from afar.
 *
 * Each piece goes through a buffer of a small page, which stays in the nearest
 * cache: it is filled by a copy that survives a machine check, and emptied by
 * stores that bypass the caches. The kernel has no function for both at once.
 * What this guards against is memory that fails while it is read, on processors
 * that can recover from that, and pages that are known to have failed, on either
 * side; the whole page is out of use from then on. Memory that fails while it is
 * written to shows when it is read next.
 */
#include <linux/io.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "actmem.h"
#include "copy.h"

static void put_pages(struct copy_piece *piece)
{
	if (piece->from)
		folio_put(piece->from);
	if (piece->to)
		folio_put(piece->to);
	piece->from = NULL;
	piece->to = NULL;
}

/* Copies up to the end of a small page of the destination. */
static int copy_some(struct copy_piece *piece, void *buffer)
{
	u32 to_offset = piece->to_offset + piece->copied;
	u32 from_offset = piece->from_offset + piece->copied;
	u32 length = min_t(u32, piece->length - piece->copied,
			   PAGE_SIZE - offset_in_page(to_offset));
	const void *bytes = page_address(ZERO_PAGE(0));
	unsigned long unread = 0;

	if (copy_is_poisoned(piece->to, to_offset, length))
		return -EIO;
	if (piece->from) {
		if (copy_is_poisoned(piece->from, from_offset, length))
			return -EIO;
		unread = copy_mc_to_kernel(buffer, folio_address(piece->from) + from_offset,
					   length);
		bytes = buffer;
	}
	memcpy_flushcache(folio_address(piece->to) + to_offset, bytes, length - unread);
	piece->copied += length - unread;
	return unread ? -EIO : 0;
}

static int copy_piece(struct copy_piece *piece)
{
	void *buffer = (void *)__get_free_page(GFP_KERNEL);
	int err = 0;

	if (!buffer)
		return -ENOMEM;
	while (!err && piece->copied < piece->length)
		err = copy_some(piece, buffer);
	/* Stores that bypass the caches are not ordered by anything else. */
	wmb();
	free_page((unsigned long)buffer);
	return err;
}

static int copy_item(void *context, unsigned long item)
{
	struct copy_batch *batch = context;
	struct copy_piece *piece = &batch->pieces[batch->order[item]];
	int err;

	err = actmem_caller_stopped(batch->caller) ?: copy_piece(piece);
	put_pages(piece);
	return err;
}

/* What is left to be copied to the node. */
static int copy_to_node(struct copy_batch *batch, int node)
{
	unsigned int i, count = 0;

	for (i = 0; i < batch->count; i++) {
		const struct copy_piece *piece = &batch->pieces[i];

		if (piece->to && folio_nid(piece->to) == node)
			batch->order[count++] = i;
	}
	return actmem_parallel(node, count, copy_item, batch);
}

static int copy_batch(struct copy_batch *batch)
{
	int err = actmem_copy_dma(batch);
	unsigned int i;

	for (i = 0; i < batch->count && !err; i++)
		if (batch->pieces[i].to)
			err = copy_to_node(batch, folio_nid(batch->pieces[i].to));
	return err;
}

/* Whatever follows the first piece that is not whole does not count. */
static u64 end_batch(struct copy_batch *batch)
{
	bool whole = true;
	unsigned int i;
	u64 copied = 0;

	for (i = 0; i < batch->count; i++) {
		struct copy_piece *piece = &batch->pieces[i];

		put_pages(piece);
		if (whole)
			copied += piece->copied;
		whole = whole && piece->copied == piece->length;
	}
	return copied;
}

/* No longer than a page, so that CPUs share what is in a larger one. */
static int add_piece(struct copy_batch *batch, struct actmem_region *to, u64 offset,
		     struct actmem_region *from, u64 source_offset, u64 length,
		     struct actmem_why *why)
{
	struct copy_piece *piece = &batch->pieces[batch->count];
	struct actmem_extent into, out_of;
	int err;

	err = actmem_extent_demand(to, offset, batch->caller, why, &into);
	if (err)
		return err;
	err = actmem_extent_get(from, source_offset, &out_of);
	if (err) {
		if (err == -EIO)
			actmem_poison_explain(from, source_offset / ACTMEM_PAGE_BYTES, why);
		folio_put(into.folio);
		return err;
	}
	length = min3(length, (u64)into.length, (u64)out_of.length);
	*piece = (struct copy_piece){
		.to = into.folio,
		.from = out_of.folio,
		.to_offset = into.offset,
		.from_offset = out_of.offset,
		.length = min(length, ACTMEM_PAGE_BYTES),
	};
	batch->count++;
	return 0;
}

/* An error is of what follows the pieces. */
static int begin_batch(struct copy_batch *batch, struct actmem_region *to, u64 offset,
		       struct actmem_region *from, u64 source_offset, u64 length,
		       struct actmem_why *why)
{
	u64 begun = 0;
	int err = 0;

	batch->count = 0;
	while (!err && begun < length && batch->count < ACTMEM_COPY_PIECES) {
		cond_resched();
		err = actmem_caller_stopped(batch->caller);
		if (!err)
			err = add_piece(batch, to, offset + begun, from, source_offset + begun,
					length - begun, why);
		if (!err)
			begun += batch->pieces[batch->count - 1].length;
	}
	return err;
}

/* The page that an error has shown is out of use from now on, if it is one of memory. */
static void check_page(struct actmem_region *region, u64 offset, struct actmem_why *why)
{
	unsigned long index = offset / ACTMEM_PAGE_BYTES;

	if (actmem_poison_check(region, index))
		actmem_poison_explain(region, index, why);
}

/**
 * actmem_copy() - copies between regions, or within one
 * @to: where to; pages missing there are allocated
 * @offset: in bytes; it may be any, and all ranges lie within their regions
 * @from: where from; pages missing there are read as zeros
 * @source_offset: in bytes; if @from is @to, the ranges do not overlap
 * @length: in bytes
 * @caller: on whose behalf
 * @done: bytes copied from the start, also on failure
 * @why: why a page could not be had
 *
 * Returns 0; EIO if the hardware has erred in a page, of which @why tells then; what
 * actmem_extent_demand() and actmem_caller_stopped() do.
 */
int actmem_copy(struct actmem_region *to, u64 offset, struct actmem_region *from,
		u64 source_offset, u64 length, const struct actmem_caller *caller, u64 *done,
		struct actmem_why *why)
{
	struct copy_batch *batch = kmalloc(sizeof(*batch), GFP_KERNEL);
	int err = 0;

	*done = 0;
	if (!batch)
		return -ENOMEM;
	batch->caller = caller;
	batch->channel = NULL;
	while (!err && *done < length) {
		int next_err = begin_batch(batch, to, offset + *done, from, source_offset + *done,
					   length - *done, why);

		err = copy_batch(batch);
		*done += end_batch(batch);
		if (err == -EIO) {
			check_page(from, source_offset + *done, why);
			check_page(to, offset + *done, why);
		}
		err = err ?: next_err;
	}
	actmem_copy_dma_end(batch);
	kfree(batch);
	return err;
}
