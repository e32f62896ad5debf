// SPDX-License-Identifier: GPL-2.0
/*
 * Goes wrong on purpose while it is being loaded, in the way that its
 * parameter names, for a test to see that the strict kernel tells of it.
 */
#include <linux/compiler.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#define OBJECT_BYTES	128

static char *way = "";
module_param(way, charp, 0400);

static struct timer_list timer;
static int __rcu *shared;

static void use_after_free(void)
{
	volatile char *object = kmalloc(OBJECT_BYTES, GFP_KERNEL);

	if (!object)
		return;
	kfree((char *)object);
	object[1] = 1;
}

static void out_of_bounds(void)
{
	volatile char *object = vmalloc(PAGE_SIZE - 8);

	if (!object)
		return;
	object[PAGE_SIZE - 4] = 1;
	vfree((char *)object);
}

static void shift(void)
{
	volatile int bits = 40, one = 1;

	one <<= bits;
}

static void list_corruption(void)
{
	LIST_HEAD(head);
	LIST_HEAD(entry);
	LIST_HEAD(other);

	list_add(&entry, &head);
	head.next = &other;
	list_del(&entry);
}

static void timer_callback(struct timer_list *unused)
{
}

static void active_object(void)
{
	timer_setup(&timer, timer_callback, 0);
	mod_timer(&timer, jiffies + 3600 * HZ);
	timer_setup(&timer, timer_callback, 0);
	timer_delete_sync(&timer);
}

static void sleep_in_atomic(void)
{
	static DEFINE_SPINLOCK(lock);

	spin_lock(&lock);
	might_sleep();
	spin_unlock(&lock);
}

static void read_outside_rcu(void)
{
	if (rcu_dereference(shared))
		pr_info("not reached\n");
}

static void lock_inversion(void)
{
	static DEFINE_MUTEX(first);
	static DEFINE_MUTEX(second);

	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static void dma_misuse(void)
{
	struct platform_device *device = platform_device_register_simple("provoke", -1, NULL, 0);

	if (IS_ERR(device))
		return;
	if (!dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64)))
		dma_unmap_single(&device->dev, PAGE_SIZE, OBJECT_BYTES, DMA_TO_DEVICE);
	platform_device_unregister(device);
}

static void warn_vm(void)
{
	VM_WARN_ON(*way);
}

/* Not zero, so that its checksum is not that of an object never looked at. */
static void leak(void)
{
	char *object = kmalloc(OBJECT_BYTES, GFP_KERNEL);

	if (object)
		memset(object, 0x5a, OBJECT_BYTES);
}

static void leak_page(void)
{
	if (!alloc_pages(GFP_KERNEL | __GFP_COMP, PMD_SHIFT - PAGE_SHIFT))
		pr_info("no huge page is free\n");
}

/* More of an object than there is. */
static int copy_too_much(void *unused)
{
	char *object = kmalloc(OBJECT_BYTES, GFP_KERNEL);
	size_t bytes = OBJECT_BYTES + 8;

	/* Lest the compiler find out. */
	OPTIMIZER_HIDE_VAR(object);
	OPTIMIZER_HIDE_VAR(bytes);
	if (object && copy_to_user((void __user *)PAGE_SIZE, object, bytes))
		pr_info("nobody has looked at the length\n");
	kfree(object);
	return 0;
}

/* A page goes that some process has mapped. */
static int free_mapped(void *mm)
{
	struct page *page = alloc_page(GFP_KERNEL);
	pte_t slot = __pte(0);

	if (!page)
		return 0;
	set_pte_at((struct mm_struct *)mm, 0, &slot, mk_pte(page, PAGE_SHARED));
	__free_page(page);
	return 0;
}

/* In a thread of its own, since what the kernel does about it is to end that. */
static void in_thread(int (*function)(void *))
{
	struct task_struct *thread = kthread_run(function, current->mm, "provoke");

	if (!IS_ERR(thread))
		msleep(500);
}

static void usercopy(void)
{
	in_thread(copy_too_much);
}

static void page_table(void)
{
	in_thread(free_mapped);
}

static const struct {
	const char *name;
	void (*go)(void);
} ways[] = {
	{ "use_after_free", use_after_free },
	{ "out_of_bounds", out_of_bounds },
	{ "shift", shift },
	{ "list_corruption", list_corruption },
	{ "active_object", active_object },
	{ "sleep_in_atomic", sleep_in_atomic },
	{ "read_outside_rcu", read_outside_rcu },
	{ "lock_inversion", lock_inversion },
	{ "dma_misuse", dma_misuse },
	{ "warn_vm", warn_vm },
	{ "usercopy", usercopy },
	{ "page_table", page_table },
	{ "leak", leak },
	{ "leak_page", leak_page },
};

static int __init provoke_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		if (!strcmp(ways[i].name, way)) {
			ways[i].go();
			return 0;
		}
	}
	return -EINVAL;
}

static void __exit provoke_exit(void)
{
}

module_init(provoke_init);
module_exit(provoke_exit);

MODULE_DESCRIPTION("Goes wrong on purpose");
MODULE_AUTHOR("The actmem authors");
MODULE_LICENSE("GPL");
