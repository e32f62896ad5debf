/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where kernels differ, and nowhere else. The ACTMEM_HAVE_* come from ./probe,
 * by which the build asks the kernel that it is given.
 */
#ifndef _ACTMEM_COMPAT_H
#define _ACTMEM_COMPAT_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>

#include <asm/mce.h>

#include "compat/probed.h"

/* The type that the first argument of inode operations points to. */
#if ACTMEM_HAVE_MNT_IDMAP
#define ACTMEM_IDMAP	struct mnt_idmap
#else
#define ACTMEM_IDMAP	struct user_namespace
#endif

/* The last arguments of inode_operations.create; exclusive or not, a file is made. */
#if ACTMEM_HAVE_CREATE_EXCLUSIVE
#define ACTMEM_CREATE_MODE	umode_t mode, bool exclusive
#else
#define ACTMEM_CREATE_MODE	umode_t mode
#endif

/* The result of inode_operations.mkdir: a dentry to use instead, or an error. */
#if ACTMEM_HAVE_MKDIR_DENTRY
#define ACTMEM_MKDIR_RESULT	struct dentry *
#define ACTMEM_MKDIR_RETURN(err)	ERR_PTR(err)
#else
#define ACTMEM_MKDIR_RESULT	int
#define ACTMEM_MKDIR_RETURN(err)	(err)
#endif

/* A name that is there until it is removed, although nothing but memory knows it. */
static inline void actmem_d_make_persistent(struct dentry *dentry, struct inode *inode)
{
#if ACTMEM_HAVE_D_MAKE_PERSISTENT
	d_make_persistent(dentry, inode);
#else
	d_instantiate(dentry, inode);
	dget(dentry);
#endif
}

/* Of a file system that has such names. */
static inline void actmem_kill_anon_super(struct super_block *super)
{
#if ACTMEM_HAVE_D_MAKE_PERSISTENT
	kill_anon_super(super);
#else
	kill_litter_super(super);
#endif
}

/* An address that AMD's processors say is the machine's; older kernels do not ask. */
#ifndef MCI_STATUS_PADDRV
#define MCI_STATUS_PADDRV	0
#endif

static inline void actmem_vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
#if ACTMEM_HAVE_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

/* How many page table entries map the folio, or a part of it. */
static inline int actmem_folio_mapcount(struct folio *folio)
{
#if ACTMEM_HAVE_LARGE_MAPCOUNT
	return folio_mapcount(folio);
#else
	/*
	 * folio_mapcount() or what it calls is not exported. Up to 6.1 a mapping of
	 * the whole folio is counted there and once more in each of its pages, as
	 * these are neither anonymous nor hugetlb.
	 */
	int whole = folio_entire_mapcount(folio);
	int count = whole;
	long i;

	/* Each mapping has a reference, and the region has two: there are no others. */
	if (folio_ref_count(folio) <= 2 + whole)
		return whole;

	if (ACTMEM_HAVE_MAPCOUNT_IN_PAGES)
		count -= whole * (int)folio_nr_pages(folio);
	for (i = 0; i < folio_nr_pages(folio); i++)
		count += atomic_read(&folio_page(folio, i)->_mapcount) + 1;
	return count;
#endif
}

#endif /* _ACTMEM_COMPAT_H */
