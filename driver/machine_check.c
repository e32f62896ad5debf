// SPDX-License-Identifier: GPL-2.0
/*
 * Who tells of errors in memory: the processors' machine checks, and the kernel
 * when it has been told of an error in any other way, as by the firmware, a
 * device (CXL) or madvise(MADV_HWPOISON).
 *
 * The kernel has no list of those who want to know of the latter. What it has is a
 * tracepoint, ras:memory_failure_event, that is there for monitors and is passed
 * whatever comes of the page. It is hooked as tracers do it; machine checks are
 * heard of by their decode chain, as the kernel does not treat all that go through
 * there, such as those in the middle of a copy that survives them.
 */
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/tracepoint.h>

#include <asm/mce.h>

#include "actmem.h"
#include "compat/memory_failure.h"

static struct tracepoint *memory_failure_event;

static void memory_has_failed(void *data, unsigned long pfn, int type, int result)
{
	actmem_poison_report(pfn);
}

static int machine_check(struct notifier_block *block, unsigned long value, void *data)
{
	struct mce *mce = data;

	if (!mce || mce_is_correctable(mce) || !mce_usable_address(mce))
		return NOTIFY_DONE;
	/* As newer kernels have it: other addresses of theirs are not the machine's. */
	if ((boot_cpu_data.x86_vendor == X86_VENDOR_AMD ||
	     boot_cpu_data.x86_vendor == X86_VENDOR_HYGON) &&
	    !(mce->status & MCI_STATUS_POISON))
		return NOTIFY_DONE;
	actmem_poison_report((mce->addr & GENMASK_ULL(boot_cpu_data.x86_phys_bits - 1, 0)) >>
			     PAGE_SHIFT);
	return NOTIFY_OK;
}

/* After those of the kernel, which may have marked the page by then. */
static struct notifier_block machine_check_block = {
	.notifier_call = machine_check,
	.priority = MCE_PRIO_LOWEST,
};

static void find_event(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "memory_failure_event"))
		memory_failure_event = tracepoint;
}

static int hook_event(void)
{
	int err;

	actmem_check_memory_failure_probe(memory_has_failed);
	for_each_kernel_tracepoint(find_event, NULL);
	if (!memory_failure_event) {
		pr_warn("actmem: this kernel does not tell of errors in memory (CONFIG_MEMORY_FAILURE): machine checks alone are heard of\n");
		return 0;
	}
	err = tracepoint_probe_register(memory_failure_event, memory_has_failed, NULL);
	if (err)
		memory_failure_event = NULL;
	return err;
}

int actmem_machine_check_init(void)
{
	int err = hook_event();

	if (!err && IS_ENABLED(CONFIG_X86_MCE))
		mce_register_decode_chain(&machine_check_block);
	return err;
}

void actmem_machine_check_exit(void)
{
	if (IS_ENABLED(CONFIG_X86_MCE))
		mce_unregister_decode_chain(&machine_check_block);
	if (memory_failure_event)
		tracepoint_probe_unregister(memory_failure_event, memory_has_failed, NULL);
	/* Also for who is in it at this moment. */
	tracepoint_synchronize_unregister();
}
