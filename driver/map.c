// SPDX-License-Identifier: GPL-2.0
/*
 * Mapping a region into a process.
 *
 * The fault handler returns a small page of a compound page. The kernel then maps the whole
 * compound page with one entry, if addresses, offsets and i_size are aligned to the size of the
 * compound page. All code here keeps these values aligned. The mapping has no flag VM_IO or
 * VM_PFNMAP, and no page_mkwrite: each of these would prevent drivers and I/O from pinning the
 * mapped pages. The mapping has no flag VM_MIXEDMAP either: with that flag, the kernel would remove
 * an entry without dropping the entry's reference to the page.
 */
#include <linux/file.h>
#include <linux/mman.h>
#include <linux/ratelimit.h>
#include <linux/user_namespace.h>

#include "actmem.h"
#include "compat/compat.h"
#include "trace.h"

/* Each message names the exhausted resource, and the setting that helps. */
static const char *const refusals[] = {
	[ACTMEM_WHY_NODE_FULL] =
		"the node has no huge page left; free memory there, or raise its pool_bytes",
	[ACTMEM_WHY_MEMLOCK] =
		"RLIMIT_MEMLOCK; raise it (ulimit -l) for the process that makes the region",
	[ACTMEM_WHY_CPUSET] = "the node is outside the task's cpuset; add it to cpuset.mems",
	[ACTMEM_WHY_NO_MEMORY_NODE] = "the node has no memory; bring some online",
	[ACTMEM_WHY_MEMCG] =
		"the memory cgroup's limit; raise its memory.max, or the node's pool_bytes",
	[ACTMEM_WHY_USER_LIMIT] = "the user's limit; raise user_limit_bytes",
	[ACTMEM_WHY_NODE_LIMIT] = "the node's limit; raise its limit_bytes",
	[ACTMEM_WHY_MOUNT_LIMIT] = "the mount's limit; raise its size= by mount -o remount",
	[ACTMEM_WHY_DMEM] = "the cgroup's limit; raise the node's limit in dmem.max",
};

/* Logs why a page fault fails, because SIGBUS gives no reason. Logs nothing for a killed task. */
static void map_fault_log(struct actmem_region *region, unsigned long index, int err,
			  const struct actmem_why *why)
{
	/* Log one line when several processes, such as those of a job, fail together. */
	static DEFINE_RATELIMIT_STATE(limit, DEFAULT_RATELIMIT_INTERVAL, 1);
	const char *words = NULL;

	if (err == -EINTR || !__ratelimit(&limit))
		return;
	if (why->reason < ARRAY_SIZE(refusals))
		words = refusals[why->reason];
	if (err == -EPERM && current->flags & PF_KTHREAD)
		words = "a kernel thread gets no pages of regions; populate the range first";
	spin_lock(&region->lock);
	pr_warn("actmem: %s[%d] gets SIGBUS, because a page cannot be allocated: region %llu '%s', offset %llu: %s (error %d; user %u, node %d: %llu bytes left of %llu wanted)\n",
		current->comm, task_tgid_nr(current), region->id, region->name,
		index * ACTMEM_PAGE_BYTES, words ?: "see actmem(4)", err,
		from_kuid(&init_user_ns, region->owner), why->node, why->available, why->wanted);
	spin_unlock(&region->lock);
}

/*
 * Allocates the missing page. @may_allocate is false for a mapping of a read-only descriptor,
 * because the page would count against the region's owner. POPULATE also refuses such descriptors.
 */
static struct folio *map_fault_demand(struct actmem_region *region, unsigned long index,
				      bool may_allocate)
{
	u64 began_ns = ktime_get_ns();
	struct actmem_why why;
	struct folio *folio;
	int node, err;

	actmem_why_clear(&why);
	folio = may_allocate ? actmem_populate_demand(region, index, &why) : ERR_PTR(-EBADF);
	err = PTR_ERR_OR_ZERO(folio);
	if (err == -EBUSY)
		return folio;
	node = err ? why.node : folio_nid(folio);
	trace_actmem_fault(region, index, node, err, began_ns);
	/* The kernel logs hardware errors itself. */
	if (err && err != -EHWPOISON)
		map_fault_log(region, index, err, &why);
	return folio;
}

/*
 * Waits for the task that allocates the page. If the fault can be retried, first releases the
 * fault's lock, because the wait is long if the other task gets little CPU time. The reference to
 * the file keeps the region alive even if another thread removes the mapping.
 */
static vm_fault_t map_fault_wait(struct vm_fault *vmf, struct actmem_region *region,
				 unsigned long index)
{
	struct file *file;

	if (!fault_flag_allow_retry_first(vmf->flags))
		return actmem_slot_wait(region, index) ? VM_FAULT_SIGBUS : VM_FAULT_NOPAGE;
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	file = get_file(vmf->vma->vm_file);
	release_fault_lock(vmf);
	/* Ignore the result, because the retried fault checks for signals. */
	(void)actmem_slot_wait(region, index);
	fput(file);
	return VM_FAULT_RETRY;
}

/*
 * Handles a page fault. Raises SIGBUS if the page cannot be allocated, as hugetlb does, or if the
 * hardware reported an error in the page. Does not use VM_FAULT_HWPOISON_LARGE, because that result
 * contains an index into a table of hugetlb, which the kernel does not export.
 */
static vm_fault_t actmem_fault(struct vm_fault *vmf)
{
	struct actmem_region *region = actmem_file_region(vmf->vma->vm_file);
	unsigned long index = vmf->pgoff >> ACTMEM_PAGE_ORDER;
	struct folio *folio;

	if (index >= region->page_count)
		return VM_FAULT_SIGBUS;
	folio = actmem_slot_get(region, index) ?:
		map_fault_demand(region, index, vmf->vma->vm_flags & VM_MAYWRITE);
	if (folio == ERR_PTR(-EBUSY))
		return map_fault_wait(vmf, region, index);
	if (IS_ERR(folio))
		return PTR_ERR(folio) == -EHWPOISON ? VM_FAULT_HWPOISON : VM_FAULT_SIGBUS;
	vmf->page = folio_page(folio, vmf->pgoff - ACTMEM_SMALL_PAGES(index));
	return 0;
}

/*
 * Does nothing. The kernel calls this operation to map pages around a faulting address, but the
 * driver maps only the page of the fault. Without this operation, the kernel would call
 * actmem_fault() under mmap_lock instead of the per-VMA lock, so that mmap() in another thread
 * would wait for the fault.
 */
static vm_fault_t actmem_map_pages(struct vm_fault *vmf, pgoff_t first, pgoff_t last)
{
	return 0;
}

/*
 * Refuses to split a mapping inside a page, because after the split the kernel would always map the
 * rest of that page with small entries.
 */
static int actmem_may_split(struct vm_area_struct *vma, unsigned long address)
{
	return IS_ALIGNED(address, ACTMEM_PAGE_BYTES) ? 0 : -EINVAL;
}

static const struct vm_operations_struct actmem_vm_operations = {
	.fault = actmem_fault,
	.map_pages = actmem_map_pages,
	.may_split = actmem_may_split,
};

static bool map_is_valid(const struct actmem_region *region, unsigned long length,
			 unsigned long pgoff)
{
	unsigned long end = ACTMEM_SMALL_PAGES(region->page_count);

	return length && IS_ALIGNED(length, ACTMEM_PAGE_BYTES) &&
	       IS_ALIGNED(pgoff, HPAGE_PMD_NR) &&
	       pgoff < end && length >> PAGE_SHIFT <= end - pgoff;
}

/*
 * Chooses an aligned address. Also refuses invalid mappings, because a refusal by actmem_mmap()
 * would be too late: with MAP_FIXED, the kernel has removed the old mapping by then.
 */
unsigned long actmem_get_unmapped_area(struct file *file, unsigned long address,
				       unsigned long length, unsigned long pgoff,
				       unsigned long flags)
{
	const struct actmem_region *region = actmem_file_region(file);

	if ((flags & MAP_TYPE) == MAP_PRIVATE)
		return -EINVAL;
	if (!region)
		return -ENODATA;
	if (!map_is_valid(region, length, pgoff))
		return -EINVAL;
	if ((flags & MAP_FIXED) && !IS_ALIGNED(address, ACTMEM_PAGE_BYTES))
		return -EINVAL;
	/* Align a hint: otherwise, the kernel would use the unaligned hint. */
	address = ALIGN(address, ACTMEM_PAGE_BYTES);
	return thp_get_unmapped_area(file, address, length, pgoff, flags);
}

int actmem_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct actmem_region *region = actmem_file_region(file);
	/* VM_DONTEXPAND also keeps away khugepaged, which would treat the pages as page cache. */
	unsigned long flags = VM_DONTEXPAND | VM_DONTDUMP;

	if (!region)
		return -ENODATA;
	/*
	 * Check VM_MAYSHARE, not VM_SHARED: a shared mapping of a read-only descriptor lacks
	 * VM_SHARED.
	 */
	if (!(vma->vm_flags & VM_MAYSHARE) || !IS_ALIGNED(vma->vm_start, ACTMEM_PAGE_BYTES) ||
	    !map_is_valid(region, vma->vm_end - vma->vm_start, vma->vm_pgoff))
		return -EINVAL;
	if (!(region->flags & ACTMEM_CREATE_INHERIT))
		flags |= VM_DONTCOPY;
	vm_flags_set(vma, flags);
	vma->vm_ops = &actmem_vm_operations;
	return 0;
}
