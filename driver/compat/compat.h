/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All code that differs between kernels. The build runs ./probe on the target kernel to define the
 * ACTMEM_HAVE_* macros.
 */
#ifndef _ACTMEM_COMPAT_H
#define _ACTMEM_COMPAT_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>

#include <asm/mce.h>

#include "actmem.h"
#include "compat/probed.h"

/* The type to which the first argument of inode operations points. */
#if ACTMEM_HAVE_MNT_IDMAP
#define ACTMEM_IDMAP	struct mnt_idmap
#else
#define ACTMEM_IDMAP	struct user_namespace
#endif

/* The last arguments of inode_operations.create. The driver ignores @exclusive. */
#if ACTMEM_HAVE_CREATE_EXCLUSIVE
#define ACTMEM_CREATE_MODE	umode_t mode, bool exclusive
#else
#define ACTMEM_CREATE_MODE	umode_t mode
#endif

/* The result of inode_operations.mkdir: a dentry to use instead of the argument, or an error. */
#if ACTMEM_HAVE_MKDIR_DENTRY
#define ACTMEM_MKDIR_RESULT	struct dentry *
#define ACTMEM_MKDIR_RETURN(err)	ERR_PTR(err)
#else
#define ACTMEM_MKDIR_RESULT	int
#define ACTMEM_MKDIR_RETURN(err)	(err)
#endif

/*
 * In older kernels, a file system in memory must hold an extra reference to the dentry of each
 * name.
 */
#if !ACTMEM_HAVE_D_MAKE_PERSISTENT
#define d_make_persistent(dentry, inode)	d_instantiate(dget(dentry), inode)
#define kill_anon_super				kill_litter_super
#endif

/*
 * The first argument of dmem_cgroup_register_region(). Before Linux 7.3, this argument is a size.
 */
#if ACTMEM_HAVE_DMEM_INIT
#define ACTMEM_DMEM_INIT(bytes, operations) \
	(&(const struct dmem_cgroup_init){ .size = (bytes), .ops = (operations) })
#else
#define ACTMEM_DMEM_INIT(bytes, operations)	((void)(operations), (bytes))
struct dmem_cgroup_pool_state;
struct dmem_cgroup_ops {
	int (*reclaim)(struct dmem_cgroup_pool_state *pool, u64 bytes, void *unused);
};
#endif

/* On AMD, this bit means: the reported address is physical. Older kernels do not define the bit. */
#ifndef MCI_STATUS_PADDRV
#define MCI_STATUS_PADDRV	0
#endif

#if !ACTMEM_HAVE_VM_FLAGS_SET
#define vm_flags_set(vma, flags)	((vma)->vm_flags |= (flags))
#endif

/* Kernels without per-VMA locks handle faults under mmap_lock. */
#ifndef CONFIG_PER_VMA_LOCK
#define release_fault_lock(vmf)		mmap_read_unlock((vmf)->vma->vm_mm)
#endif

/* Returns how many page table entries map the folio or a part of it. */
static inline int actmem_folio_mapcount(struct folio *folio)
{
#if ACTMEM_HAVE_LARGE_MAPCOUNT
	return folio_mapcount(folio);
#else
	/*
	 * These kernels do not export folio_mapcount(), or do not export a function that
	 * folio_mapcount() calls. Up to 6.1, the kernel counts a mapping of a whole folio twice, in
	 * the folio and in each page of the folio. Only anonymous and hugetlb folios are
	 * exceptions, and a region's folios are neither.
	 */
	int whole = folio_entire_mapcount(folio);
	int count = whole;
	long i;

	/*
	 * Every mapping holds a reference, and the driver holds ACTMEM_PAGE_REFERENCES. If the
	 * driver and the mappings of the whole folio hold all references, the folio has no other
	 * mappings.
	 */
	if (folio_ref_count(folio) <= ACTMEM_PAGE_REFERENCES + whole)
		return whole;

	if (ACTMEM_HAVE_MAPCOUNT_IN_PAGES)
		count -= whole * (int)folio_nr_pages(folio);
	for (i = 0; i < folio_nr_pages(folio); i++)
		count += atomic_read(&folio_page(folio, i)->_mapcount) + 1;
	return count;
#endif
}

#endif /* _ACTMEM_COMPAT_H */
