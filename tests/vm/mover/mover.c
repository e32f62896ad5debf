// SPDX-License-Identifier: GPL-2.0
/*
 * A DMA engine made of software, for tests of those who use one: a channel
 * that copies memory in a worker, not in order and not by much at a time. The
 * parameter @way says how it does.
 */
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/io.h>
#include <linux/irqflags.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#define LENGTH_MAX	SZ_256K

enum {
	GOOD,
	ERRING,		/* leaves garbage, and says that it failed */
	REFUSING,	/* takes nothing */
	HANGING,	/* does nothing until it is stopped */
	STUCK,		/* nor can it be stopped */
};

struct job {
	struct dma_async_tx_descriptor descriptor;
	struct list_head entry;
	dma_addr_t to;
	dma_addr_t from;
	size_t length;
};

static void carry_out_jobs(struct work_struct *work);

static struct platform_device *parent;
static struct dma_device mover;
static struct dma_chan channel;
static DEFINE_SPINLOCK(lock);
static LIST_HEAD(submitted);
static LIST_HEAD(issued);
static DECLARE_WORK(worker, carry_out_jobs);

static unsigned int way;

static int set_way(const char *value, const struct kernel_param *parameter)
{
	int err = param_set_uint(value, parameter);

	schedule_work(&worker);
	return err;
}

static const struct kernel_param_ops way_ops = {
	.set = set_way,
	.get = param_get_uint,
};
module_param_cb(way, &way_ops, &way, 0644);

static struct job *take_job(void)
{
	struct job *job;

	spin_lock_irq(&lock);
	/* The last first. */
	job = list_empty(&issued) ? NULL : list_last_entry(&issued, struct job, entry);
	if (job)
		list_del(&job->entry);
	spin_unlock_irq(&lock);
	return job;
}

/* Devices tell of an end in interrupts. */
static void carry_out(struct job *job, bool fails)
{
	struct dmaengine_result result = {
		.result = fails ? DMA_TRANS_WRITE_FAILED : DMA_TRANS_NOERROR,
	};
	unsigned long flags;

	if (fails)
		memset(phys_to_virt(job->to), 0xdb, job->length / 2);
	else
		memcpy(phys_to_virt(job->to), phys_to_virt(job->from), job->length);
	local_irq_save(flags);
	job->descriptor.callback_result(job->descriptor.callback_param, &result);
	local_irq_restore(flags);
	kfree(job);
}

static void carry_out_jobs(struct work_struct *work)
{
	struct job *job;

	while (READ_ONCE(way) < HANGING && (job = take_job()))
		carry_out(job, READ_ONCE(way) == ERRING);
}

static dma_cookie_t mover_submit(struct dma_async_tx_descriptor *descriptor)
{
	struct job *job = container_of(descriptor, struct job, descriptor);
	unsigned long flags;
	dma_cookie_t cookie;

	spin_lock_irqsave(&lock, flags);
	cookie = channel.cookie == INT_MAX ? DMA_MIN_COOKIE : channel.cookie + 1;
	channel.cookie = cookie;
	descriptor->cookie = cookie;
	list_add_tail(&job->entry, &submitted);
	spin_unlock_irqrestore(&lock, flags);
	return cookie;
}

static struct dma_async_tx_descriptor *mover_prepare(struct dma_chan *chan, dma_addr_t to,
						     dma_addr_t from, size_t length,
						     unsigned long flags)
{
	struct job *job;

	if (READ_ONCE(way) == REFUSING || length > LENGTH_MAX)
		return NULL;
	job = kzalloc(sizeof(*job), GFP_NOWAIT);
	if (!job)
		return NULL;
	dma_async_tx_descriptor_init(&job->descriptor, chan);
	job->descriptor.flags = flags;
	job->descriptor.tx_submit = mover_submit;
	job->to = to;
	job->from = from;
	job->length = length;
	return &job->descriptor;
}

static void mover_issue(struct dma_chan *chan)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	list_splice_tail_init(&submitted, &issued);
	spin_unlock_irqrestore(&lock, flags);
	schedule_work(&worker);
}

static enum dma_status mover_status(struct dma_chan *chan, dma_cookie_t cookie,
				    struct dma_tx_state *state)
{
	return DMA_OUT_OF_ORDER;
}

static int mover_terminate(struct dma_chan *chan)
{
	struct job *job, *next;
	unsigned long flags;
	LIST_HEAD(dropped);

	if (READ_ONCE(way) == STUCK)
		return -EBUSY;
	spin_lock_irqsave(&lock, flags);
	list_splice_init(&submitted, &dropped);
	list_splice_init(&issued, &dropped);
	spin_unlock_irqrestore(&lock, flags);
	list_for_each_entry_safe(job, next, &dropped, entry)
		kfree(job);
	return 0;
}

static void mover_synchronize(struct dma_chan *chan)
{
	flush_work(&worker);
}

static void mover_free_resources(struct dma_chan *chan)
{
}

static void mover_release(struct dma_device *device)
{
}

static int __init mover_probe(struct platform_device *device)
{
	int err = dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64));

	if (err)
		return err;
	dma_cap_set(DMA_MEMCPY, mover.cap_mask);
	dma_cap_set(DMA_PRIVATE, mover.cap_mask);
	dma_cap_set(DMA_COMPLETION_NO_ORDER, mover.cap_mask);
	mover.dev = &device->dev;
	mover.device_prep_dma_memcpy = mover_prepare;
	mover.device_issue_pending = mover_issue;
	mover.device_tx_status = mover_status;
	mover.device_terminate_all = mover_terminate;
	mover.device_synchronize = mover_synchronize;
	mover.device_free_chan_resources = mover_free_resources;
	mover.device_release = mover_release;
	INIT_LIST_HEAD(&mover.channels);
	channel.device = &mover;
	list_add_tail(&channel.device_node, &mover.channels);
	return dma_async_device_register(&mover);
}

/* The DMA engines' users hold the module of the driver that their device has. */
static struct platform_driver driver = {
	.driver = {
		.name = "mover",
	},
};

static int __init mover_init(void)
{
	parent = platform_create_bundle(&driver, mover_probe, NULL, 0, NULL, 0);
	return PTR_ERR_OR_ZERO(parent);
}

static void __exit mover_exit(void)
{
	dma_async_device_unregister(&mover);
	cancel_work_sync(&worker);
	platform_device_unregister(parent);
	platform_driver_unregister(&driver);
}

module_init(mover_init);
module_exit(mover_exit);

MODULE_DESCRIPTION("DMA engine made of software");
MODULE_AUTHOR("The actmem authors");
MODULE_LICENSE("GPL");
