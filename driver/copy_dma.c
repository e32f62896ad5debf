// SPDX-License-Identifier: GPL-2.0
/*
 * Copying by a DMA engine, such as Intel's DSA, where the parameter dma_copy
 * asks for it. Tried with a channel made of software alone: no hardware has
 * run this yet, which is why it is off by default.
 *
 * Each copy takes a channel for itself while it lasts, of the node that is
 * written to if there is one. What a channel cannot copy, and what it fails to,
 * is left to the CPUs; the first time the kernel's log tells why, and every
 * time dma_missed_bytes counts it. Short pieces and missing pages are theirs
 * anyway.
 *
 * A channel that does not finish in time is told to stop. One that cannot stop
 * may still write to the pages: they stay referenced and mapped, and the copy
 * fails, until the channel ends what it was told to do, be it never.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/llist.h>
#include <linux/module.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "actmem.h"
#include "copy.h"

/* Less is copied sooner than a channel can be told to. */
#define BYTES_MIN	SZ_64K

/* Many times what the slowest takes for a batch. */
#define TIMEOUT		(10 * HZ)

static bool dma_copy;
module_param(dma_copy, bool, 0644);
MODULE_PARM_DESC(dma_copy, "let DMA engines copy between regions; untested on hardware (default 0)");

static atomic64_t copied_bytes;
static atomic64_t missed_bytes;

/**
 * struct transfer - a piece in the hands of the channel
 * @job: that it is part of
 * @piece: of the batch
 * @to: referenced
 * @from: referenced
 * @to_address: where the device sees the piece of @to
 * @from_address: where it sees that of @from
 * @length: bytes
 * @failed: not all of it was copied
 */
struct transfer {
	struct dma_job *job;
	struct copy_piece *piece;
	struct folio *to;
	struct folio *from;
	dma_addr_t to_address;
	dma_addr_t from_address;
	u32 length;
	bool failed;
};

enum { RUNNING, ENDED, ABANDONED };

/**
 * struct dma_job - what a channel has been told to do for a batch
 * @channel: of DMA
 * @pending: descriptors that have not ended, and one more before all are submitted
 * @state: RUNNING, ENDED once nothing is pending, or ABANDONED by who waited
 * @done: for who waits
 * @ended: entry in abandoned_jobs
 * @count: of @transfers
 * @transfers: pieces
 */
struct dma_job {
	struct dma_chan *channel;
	refcount_t pending;
	atomic_t state;
	struct completion done;
	struct llist_node ended;
	unsigned int count;
	struct transfer transfers[ACTMEM_COPY_PIECES];
};

/* Those that have ended after all. */
static LLIST_HEAD(abandoned_jobs);

u64 actmem_dma_copied_bytes(void)
{
	return atomic64_read(&copied_bytes);
}

u64 actmem_dma_missed_bytes(void)
{
	return atomic64_read(&missed_bytes);
}

static void unmap(struct dma_chan *channel, const struct transfer *transfer)
{
	struct device *device = dmaengine_get_dma_device(channel);

	dma_unmap_page(device, transfer->to_address, transfer->length, DMA_FROM_DEVICE);
	dma_unmap_page(device, transfer->from_address, transfer->length, DMA_TO_DEVICE);
}

static void end_abandoned_job(struct dma_job *job)
{
	unsigned int i;

	for (i = 0; i < job->count; i++)
		unmap(job->channel, &job->transfers[i]);
	pr_notice("actmem: DMA channel %s has ended late\n", dma_chan_name(job->channel));
	dma_release_channel(job->channel);
	/* The channel is free by the time that the pages are seen to be. */
	for (i = 0; i < job->count; i++) {
		folio_put(job->transfers[i].to);
		folio_put(job->transfers[i].from);
	}
	kfree(job);
	module_put(THIS_MODULE);
}

static void end_abandoned_jobs(struct work_struct *work)
{
	struct dma_job *job, *next;

	llist_for_each_entry_safe(job, next, llist_del_all(&abandoned_jobs), ended)
		end_abandoned_job(job);
}

static DECLARE_WORK(end_abandoned_work, end_abandoned_jobs);

/* The module goes: no job is left, but the worker may still be returning. */
void actmem_copy_dma_exit(void)
{
	cancel_work_sync(&end_abandoned_work);
}

/* One thing less is pending. Also called from interrupts. */
static void end_one(struct dma_job *job)
{
	if (!refcount_dec_and_test(&job->pending))
		return;
	if (atomic_cmpxchg(&job->state, RUNNING, ENDED) == RUNNING) {
		complete(&job->done);
	} else {
		llist_add(&job->ended, &abandoned_jobs);
		schedule_work(&end_abandoned_work);
	}
}

static void descriptor_ended(void *context, const struct dmaengine_result *result)
{
	struct transfer *transfer = context;

	if (result && result->result != DMA_TRANS_NOERROR)
		WRITE_ONCE(transfer->failed, true);
	end_one(transfer->job);
}

static bool submit_bytes(struct transfer *transfer, u32 at, u32 length)
{
	struct dma_chan *channel = transfer->job->channel;
	struct dma_async_tx_descriptor *descriptor;

	descriptor = dmaengine_prep_dma_memcpy(channel, transfer->to_address + at,
					       transfer->from_address + at, length,
					       DMA_PREP_INTERRUPT | DMA_CTRL_ACK);
	if (!descriptor)
		return false;
	descriptor->callback_result = descriptor_ended;
	descriptor->callback_param = transfer;
	refcount_inc(&transfer->job->pending);
	if (!dma_submit_error(dmaengine_submit(descriptor)))
		return true;
	refcount_dec(&transfer->job->pending);
	return false;
}

/*
 * Nothing tells how many bytes a channel takes at a time, but that it refuses
 * more. It may also have no room at this moment.
 */
static bool submit(struct transfer *transfer, u32 *most)
{
	u32 at = 0, length;

	while (at < transfer->length) {
		length = min(transfer->length - at, *most);
		if (submit_bytes(transfer, at, length))
			at += length;
		else if (*most > BYTES_MIN)
			*most /= 2;
		else
			return false;
	}
	return true;
}

static dma_addr_t map(struct device *device, struct folio *folio, u32 offset, u32 length,
		      enum dma_data_direction direction)
{
	return dma_map_page(device, folio_page(folio, offset >> PAGE_SHIFT),
			    offset_in_page(offset), length, direction);
}

static void start(struct dma_job *job, struct copy_piece *piece, u32 *most)
{
	struct device *device = dmaengine_get_dma_device(job->channel);
	struct transfer *transfer = &job->transfers[job->count];

	/* Where caches are not coherent, neighbours in a line would be lost. */
	if (!IS_ALIGNED(piece->to_offset | piece->length, dma_get_cache_alignment()) ||
	    !is_dma_copy_aligned(job->channel->device, piece->from_offset, piece->to_offset,
				 piece->length) ||
	    copy_is_poisoned(piece->to, piece->to_offset, piece->length) ||
	    copy_is_poisoned(piece->from, piece->from_offset, piece->length))
		return;

	*transfer = (struct transfer){
		.job = job,
		.piece = piece,
		.to = piece->to,
		.from = piece->from,
		.length = piece->length,
	};
	transfer->from_address = map(device, piece->from, piece->from_offset, piece->length,
				     DMA_TO_DEVICE);
	if (dma_mapping_error(device, transfer->from_address))
		return;
	transfer->to_address = map(device, piece->to, piece->to_offset, piece->length,
				   DMA_FROM_DEVICE);
	if (dma_mapping_error(device, transfer->to_address)) {
		dma_unmap_page(device, transfer->from_address, piece->length, DMA_TO_DEVICE);
		return;
	}
	/* Even if it is not all submitted, what is must be waited for. */
	job->count++;
	if (!submit(transfer, most))
		WRITE_ONCE(transfer->failed, true);
}

/* The pages are the channel's now, and so is the module. */
static void abandon(struct dma_job *job)
{
	unsigned int i;

	pr_err("actmem: DMA channel %s neither ends nor stops; it keeps the pages of %u pieces\n",
	       dma_chan_name(job->channel), job->count);
	for (i = 0; i < job->count; i++) {
		job->transfers[i].piece->to = NULL;
		job->transfers[i].piece->from = NULL;
	}
}

/* EIO if the channel cannot be stopped; then the job is its own. */
static int wait(struct dma_job *job)
{
	unsigned int i;

	if (wait_for_completion_timeout(&job->done, TIMEOUT))
		return 0;
	if (!dmaengine_terminate_sync(job->channel)) {
		for (i = 0; i < job->count; i++)
			job->transfers[i].failed = true;
		return 0;
	}
	/* Before the channel can end it. */
	__module_get(THIS_MODULE);
	abandon(job);
	if (atomic_cmpxchg(&job->state, RUNNING, ABANDONED) == ENDED) {
		/* Who ended it is about to say so, and must be done with it. */
		wait_for_completion(&job->done);
		llist_add(&job->ended, &abandoned_jobs);
		schedule_work(&end_abandoned_work);
	}
	return -EIO;
}

static bool is_for_dma(const struct copy_piece *piece)
{
	return piece->to && piece->from && piece->length >= BYTES_MIN;
}

static void put_pieces(struct dma_job *job)
{
	unsigned int i;

	for (i = 0; i < job->count; i++) {
		struct transfer *transfer = &job->transfers[i];

		unmap(job->channel, transfer);
		if (transfer->failed)
			continue;
		transfer->piece->copied = transfer->length;
		folio_put(transfer->to);
		folio_put(transfer->from);
		transfer->piece->to = NULL;
		transfer->piece->from = NULL;
		atomic64_add(transfer->length, &copied_bytes);
	}
}

static int run_job(struct copy_batch *batch, struct dma_job *job)
{
	u32 most = ACTMEM_PAGE_BYTES;
	unsigned int i;
	int err;

	job->channel = batch->channel;
	refcount_set(&job->pending, 1);
	init_completion(&job->done);
	for (i = 0; i < batch->count; i++)
		if (is_for_dma(&batch->pieces[i]))
			start(job, &batch->pieces[i], &most);
	dma_async_issue_pending(job->channel);
	end_one(job);
	err = wait(job);
	if (err)
		batch->channel = NULL;
	else
		put_pieces(job);
	return err;
}

static bool is_of_node(struct dma_chan *channel, void *node)
{
	return dev_to_node(dmaengine_get_dma_device(channel)) == *(int *)node;
}

static struct dma_chan *request_channel(int node)
{
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	return dma_request_channel(mask, is_of_node, &node) ?:
	       dma_request_channel(mask, NULL, NULL);
}

static void count_missed(const struct copy_batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->count; i++) {
		if (!is_for_dma(&batch->pieces[i]))
			continue;
		atomic64_add(batch->pieces[i].length, &missed_bytes);
		if (batch->channel)
			pr_warn_once("actmem: DMA channel %s has not copied %u bytes; CPUs do, see dma_missed_bytes\n",
				     dma_chan_name(batch->channel), batch->pieces[i].length);
		else
			pr_warn_once("actmem: dma_copy is set, but no DMA channel is free that copies memory; CPUs do, see dma_missed_bytes\n");
	}
}

/**
 * actmem_copy_dma() - has a DMA engine copy what it can of a batch
 * @batch: pieces that are copied are marked so, and their pages let go of
 *
 * Returns 0, or EIO if the engine keeps some of the pages.
 */
int actmem_copy_dma(struct copy_batch *batch)
{
	struct dma_job *job;
	unsigned int i;
	int err = 0;

	for (i = 0; i < batch->count && !is_for_dma(&batch->pieces[i]); i++)
		;
	if (i == batch->count || !READ_ONCE(dma_copy))
		return 0;
	if (!batch->channel)
		batch->channel = request_channel(folio_nid(batch->pieces[i].to));
	if (batch->channel) {
		job = kzalloc(sizeof(*job), GFP_KERNEL);
		if (!job)
			return -ENOMEM;
		err = run_job(batch, job);
		if (err)
			return err;
		kfree(job);
	}
	count_missed(batch);
	return 0;
}

void actmem_copy_dma_end(struct copy_batch *batch)
{
	if (batch->channel)
		dma_release_channel(batch->channel);
}
