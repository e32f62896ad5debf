// SPDX-License-Identifier: GPL-2.0
/* The module and its device, /dev/actmem. */
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "actmem.h"

static const struct file_operations actmem_device_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = actmem_device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice actmem_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "actmem",
	.mode = 0660,
	.fops = &actmem_device_fops,
};

static int __init actmem_init(void)
{
	int err;

	BUILD_BUG_ON(ACTMEM_PAGE_BYTES != HPAGE_PMD_SIZE);
	/* The u64 ids of regions must fit in an xarray index, and region lengths in a size_t. */
	BUILD_BUG_ON(!IS_ENABLED(CONFIG_64BIT));

	err = actmem_account_init();
	if (err)
		return err;
	err = actmem_pool_init();
	if (err)
		goto account_exit;
	err = ACTMEM_HAS_DMEM ? actmem_dmem_init() : 0;
	if (err)
		goto pool_exit;
	err = actmem_sysfs_init(&actmem_device);
	if (err)
		goto dmem_exit;
	err = misc_register(&actmem_device);
	if (err)
		goto sysfs_exit;
	/* User space can create regions from here on, so init must not fail any more. */
	actmem_poison_init();
	if (actmem_mount_init())
		pr_warn("actmem: another file system has the name actmem, so file systems of this module cannot be mounted\n");
	return 0;

sysfs_exit:
	actmem_sysfs_exit();
dmem_exit:
	if (ACTMEM_HAS_DMEM)
		actmem_dmem_exit();
pool_exit:
	actmem_pool_exit();
account_exit:
	actmem_account_exit();
	return err;
}

static void __exit actmem_exit(void)
{
	misc_deregister(&actmem_device);
	actmem_mount_exit();
	actmem_poison_exit();
	actmem_regions_exit();
	actmem_sysfs_exit();
	if (ACTMEM_HAS_DMEM)
		actmem_dmem_exit();
	actmem_pool_exit();
	actmem_account_exit();
}

module_init(actmem_init);
module_exit(actmem_exit);

MODULE_DESCRIPTION("Pinned huge-page memory for activations");
MODULE_AUTHOR("The actmem authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(ACTMEM_VERSION);
