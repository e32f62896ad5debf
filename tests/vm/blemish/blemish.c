// SPDX-License-Identifier: GPL-2.0
/*
 * Marks a page as one in which the hardware has erred, and does nothing else
 * that the kernel does then: the page stays where it is. The parameter @pfn is
 * the page; what was marked before is whole again.
 */
#include <linux/mm.h>
#include <linux/module.h>

static unsigned long pfn;

static void clear(void)
{
	if (pfn)
		ClearPageHWPoison(pfn_to_page(pfn));
	pfn = 0;
}

static int set_pfn(const char *value, const struct kernel_param *parameter)
{
	unsigned long wanted;
	int err = kstrtoul(value, 10, &wanted);

	if (err)
		return err;
	if (wanted && !pfn_valid(wanted))
		return -ENXIO;
	clear();
	if (wanted)
		SetPageHWPoison(pfn_to_page(wanted));
	pfn = wanted;
	return 0;
}

static const struct kernel_param_ops pfn_ops = {
	.set = set_pfn,
	.get = param_get_ulong,
};
module_param_cb(pfn, &pfn_ops, &pfn, 0600);

static int __init blemish_init(void)
{
	return 0;
}

static void __exit blemish_exit(void)
{
	clear();
}

module_init(blemish_init);
module_exit(blemish_exit);

MODULE_DESCRIPTION("Marks a page as failed");
MODULE_AUTHOR("The actmem authors");
MODULE_LICENSE("GPL");
