// SPDX-License-Identifier: GPL-2.0
/*
 * An importer of dma-bufs, as a driver of an accelerator is one: attaches them
 * to a device, maps them and has the device's DMA engine transfer what is in
 * them. The devices are QEMU's edu, where this driver is bound to it, and two
 * that are none, which no IOMMU translates for.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "importer.h"

/* By whatever macro, this is what it comes to in all kernels. */
MODULE_INFO(import_ns, "DMA_BUF");

#define SLOTS		32
#define PLAIN_DEVICES	2
#define MAPS		4

#define EDU_BUFFER	0x40000
#define EDU_CHUNK	2048
#define EDU_SOURCE	0x80
#define EDU_TARGET	0x88
#define EDU_COUNT	0x90
#define EDU_COMMAND	0x98
#define EDU_START	1
#define EDU_TO_MEMORY	2

struct edu {
	struct pci_dev *device;
	void __iomem *registers;
};

struct import {
	/* Protects what follows. */
	struct mutex lock;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;
	struct edu *edu;
	unsigned int maps;
	enum dma_data_direction directions[MAPS];
	struct sg_table *tables[MAPS];
	/* Where the latest mapping starts for the device, even after it is unmapped. */
	dma_addr_t start;
};

static struct edu edus[SLOTS];
static struct platform_device *plain[PLAIN_DEVICES];
/* Of the devices. */
static DEFINE_MUTEX(edu_lock);

static struct device *find_device(unsigned int slot)
{
	if (slot < PLAIN_DEVICES)
		return &plain[slot]->dev;
	return slot < SLOTS && edus[slot].device ? &edus[slot].device->dev : NULL;
}

static int set_limits(struct device *dev, const struct importer_attach *arg)
{
	int err = 0;

	/* A kernel without ZONE_DMA would refuse a mask that is less than memory. */
	if (arg->slot < PLAIN_DEVICES)
		*dev->dma_mask = DMA_BIT_MASK(arg->mask_bits);
	else
		err = dma_set_mask(dev, DMA_BIT_MASK(arg->mask_bits));
	if (err)
		return err;
	dma_set_max_seg_size(dev, arg->max_segment);
	dma_set_seg_boundary(dev, arg->boundary);
	return 0;
}

static int attach(struct import *import, void __user *user)
{
	struct importer_attach arg;
	struct device *dev;
	int err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (import->attachment)
		return -EBUSY;
	dev = find_device(arg.slot);
	if (!dev)
		return -ENODEV;
	import->edu = arg.slot < PLAIN_DEVICES ? NULL : &edus[arg.slot];
	err = set_limits(dev, &arg);
	if (err)
		return err;
	import->dmabuf = dma_buf_get(arg.fd);
	if (IS_ERR(import->dmabuf))
		return PTR_ERR(import->dmabuf);
	import->attachment = dma_buf_attach(import->dmabuf, dev);
	if (!IS_ERR(import->attachment))
		return 0;
	err = PTR_ERR(import->attachment);
	import->attachment = NULL;
	dma_buf_put(import->dmabuf);
	return err;
}

static int unmap(struct import *import)
{
	if (!import->maps)
		return -EINVAL;
	import->maps--;
	dma_buf_unmap_attachment_unlocked(import->attachment, import->tables[import->maps],
					  import->directions[import->maps]);
	return 0;
}

static int detach(struct import *import)
{
	if (!import->attachment)
		return -EINVAL;
	while (import->maps)
		unmap(import);
	dma_buf_detach(import->dmabuf, import->attachment);
	dma_buf_put(import->dmabuf);
	import->attachment = NULL;
	return 0;
}

static void describe(const struct sg_table *table, struct importer_map *arg)
{
	struct scatterlist *segment;
	unsigned int i;

	arg->pieces = table->orig_nents;
	arg->segments = table->nents;
	arg->smallest = U64_MAX;
	arg->largest = 0;
	arg->bytes = 0;
	arg->highest = 0;
	for_each_sgtable_dma_sg(table, segment, i) {
		u64 length = sg_dma_len(segment);

		arg->smallest = min(arg->smallest, length);
		arg->largest = max(arg->largest, length);
		arg->bytes += length;
		arg->highest = max(arg->highest, sg_dma_address(segment) + length - 1);
	}
}

static int map(struct import *import, void __user *user)
{
	struct importer_map arg;
	struct sg_table *table;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (!import->attachment || import->maps == MAPS || arg.direction > DMA_FROM_DEVICE)
		return -EINVAL;
	table = dma_buf_map_attachment_unlocked(import->attachment, arg.direction);
	if (IS_ERR(table))
		return PTR_ERR(table);
	import->directions[import->maps] = arg.direction;
	import->tables[import->maps++] = table;
	import->start = sg_dma_address(table->sgl);
	describe(table, &arg);
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

/* Where the device finds the bytes by its latest mapping, in one segment; 0 if it does not. */
static dma_addr_t address_of(const struct import *import, u64 offset, u64 length)
{
	struct scatterlist *segment;
	unsigned int i;

	if (!import->maps)
		return 0;
	for_each_sgtable_dma_sg(import->tables[import->maps - 1], segment, i) {
		if (offset + length <= sg_dma_len(segment))
			return sg_dma_address(segment) + offset;
		if (offset < sg_dma_len(segment))
			return 0;
		offset -= sg_dma_len(segment);
	}
	return 0;
}

static int transfer(struct edu *edu, u64 from, u64 to, u64 length, u64 command)
{
	unsigned int tries;

	writeq(from, edu->registers + EDU_SOURCE);
	writeq(to, edu->registers + EDU_TARGET);
	writeq(length, edu->registers + EDU_COUNT);
	writeq(EDU_START | command, edu->registers + EDU_COMMAND);
	for (tries = 0; tries < 60000; tries++) {
		if (!(readl(edu->registers + EDU_COMMAND) & EDU_START))
			return 0;
		usleep_range(1000, 2000);
	}
	return -ETIMEDOUT;
}

static int move(struct import *import, const struct import *source,
		const struct importer_move *arg)
{
	dma_addr_t from, to;
	int err;

	if (!import->edu || source->edu != import->edu || !arg->length || arg->length > EDU_CHUNK)
		return -EINVAL;
	from = address_of(source, arg->from, arg->length);
	to = address_of(import, arg->to, arg->length);
	if (!from || !to)
		return -EINVAL;
	mutex_lock(&edu_lock);
	err = transfer(import->edu, from, EDU_BUFFER, arg->length, 0);
	if (!err)
		err = transfer(import->edu, EDU_BUFFER, to, arg->length, EDU_TO_MEMORY);
	mutex_unlock(&edu_lock);
	return err;
}

static const struct file_operations importer_operations;

/* The source is another file, which its one user does not change meanwhile. */
static int move_from(struct import *import, void __user *user)
{
	struct importer_move arg;
	struct file *source;
	int err = -EINVAL;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	source = fget(arg.source_fd);
	if (!source)
		return -EBADF;
	if (source->f_op == &importer_operations)
		err = move(import, source->private_data, &arg);
	fput(source);
	return err;
}

/* As a device without IOMMU finds it: at the physical address. */
static int peek(struct import *import, void __user *user)
{
	struct importer_word arg;
	dma_addr_t address;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	address = address_of(import, arg.offset, sizeof(arg.before));
	if (import->edu || !address)
		return -EINVAL;
	arg.before = *(u64 *)phys_to_virt(address);
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

static int is_gone(const struct import *import)
{
	struct iommu_domain *domain;

	if (!import->attachment || !import->start)
		return -EINVAL;
	domain = iommu_get_domain_for_dev(import->attachment->dev);
	if (!domain)
		return -ENODEV;
	return iommu_iova_to_phys(domain, import->start) ? -EBUSY : 0;
}

static int carry_out(struct import *import, unsigned int request, void __user *user)
{
	switch (request) {
	case IMPORTER_ATTACH:
		return attach(import, user);
	case IMPORTER_DETACH:
		return detach(import);
	case IMPORTER_MAP:
		return map(import, user);
	case IMPORTER_UNMAP:
		return unmap(import);
	case IMPORTER_MOVE:
		return move_from(import, user);
	case IMPORTER_PEEK:
		return peek(import, user);
	case IMPORTER_GONE:
		return is_gone(import);
	default:
		return -ENOTTY;
	}
}

struct touch {
	struct work_struct work;
	struct mm_struct *mm;
	u8 __user *address;
	int err;
};

static void touch_work(struct work_struct *work)
{
	struct touch *touch = container_of(work, struct touch, work);

	kthread_use_mm(touch->mm);
	touch->err = put_user(1, touch->address);
	kthread_unuse_mm(touch->mm);
}

static int touch_address(void __user *user)
{
	struct touch touch = { .mm = current->mm };
	u64 address;

	if (copy_from_user(&address, user, sizeof(address)))
		return -EFAULT;
	touch.address = u64_to_user_ptr(address);
	INIT_WORK_ONSTACK(&touch.work, touch_work);
	schedule_work(&touch.work);
	flush_work(&touch.work);
	destroy_work_on_stack(&touch.work);
	return touch.err;
}

static long importer_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	struct import *import = file->private_data;
	long err;

	if (request == IMPORTER_TOUCH)
		return touch_address((void __user *)arg);
	mutex_lock(&import->lock);
	err = carry_out(import, request, (void __user *)arg);
	mutex_unlock(&import->lock);
	return err;
}

static int importer_open(struct inode *inode, struct file *file)
{
	struct import *import = kzalloc(sizeof(*import), GFP_KERNEL);

	if (!import)
		return -ENOMEM;
	mutex_init(&import->lock);
	file->private_data = import;
	return 0;
}

static int importer_release(struct inode *inode, struct file *file)
{
	struct import *import = file->private_data;

	detach(import);
	kfree(import);
	return 0;
}

static const struct file_operations importer_operations = {
	.owner = THIS_MODULE,
	.open = importer_open,
	.release = importer_release,
	.unlocked_ioctl = importer_ioctl,
};

static struct miscdevice importer = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "importer",
	.mode = 0666,
	.fops = &importer_operations,
};

static int edu_probe(struct pci_dev *device, const struct pci_device_id *id)
{
	struct edu *edu = &edus[PCI_SLOT(device->devfn)];
	int err = pci_enable_device(device);

	if (err)
		return err;
	edu->registers = pci_iomap(device, 0, 0);
	if (!edu->registers) {
		pci_disable_device(device);
		return -ENOMEM;
	}
	pci_set_master(device);
	edu->device = device;
	return 0;
}

static void edu_remove(struct pci_dev *device)
{
	struct edu *edu = &edus[PCI_SLOT(device->devfn)];

	edu->device = NULL;
	pci_clear_master(device);
	pci_iounmap(device, edu->registers);
	pci_disable_device(device);
}

/* Bound by driver_override alone. */
static struct pci_driver edu_driver = {
	.name = "importer",
	.probe = edu_probe,
	.remove = edu_remove,
};

static void remove_plain(void)
{
	int i;

	for (i = 0; i < PLAIN_DEVICES; i++)
		platform_device_unregister(plain[i]);
}

static int add_plain(void)
{
	int i, err = 0;

	for (i = 0; !err && i < PLAIN_DEVICES; i++) {
		plain[i] = platform_device_register_simple("importer", i, NULL, 0);
		err = PTR_ERR_OR_ZERO(plain[i]);
		if (!err)
			err = dma_coerce_mask_and_coherent(&plain[i]->dev, DMA_BIT_MASK(64));
	}
	if (err)
		remove_plain();
	return err;
}

static int __init importer_init(void)
{
	int err = add_plain();

	if (err)
		return err;
	err = pci_register_driver(&edu_driver);
	if (err)
		goto remove_plain;
	err = misc_register(&importer);
	if (!err)
		return 0;
	pci_unregister_driver(&edu_driver);
remove_plain:
	remove_plain();
	return err;
}

static void __exit importer_exit(void)
{
	misc_deregister(&importer);
	pci_unregister_driver(&edu_driver);
	remove_plain();
}

module_init(importer_init);
module_exit(importer_exit);

MODULE_DESCRIPTION("Importer of dma-bufs");
MODULE_AUTHOR("The actmem authors");
MODULE_LICENSE("GPL");
