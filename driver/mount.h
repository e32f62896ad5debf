/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations that only the files of the file system share: superblocks, their options and limits,
 * and inodes.
 */
#ifndef _ACTMEM_MOUNT_H
#define _ACTMEM_MOUNT_H

#include <linux/slab.h>

#include "actmem.h"

/**
 * struct actmem_mount - options and limits of a superblock that contains named regions
 * @ref: reference count. The superblock and each region of the mount hold a reference, because a
 *	lingering region may outlive the superblock
 * @policy: ACTMEM_POLICY_*, for regions that are created without their own policy
 * @nodes: mask of the policy
 * @uid: initial owner of the root directory
 * @gid: initial group of the root directory
 * @mode: initial permissions of the root directory
 * @pages: quota of pages, including pages that regions are about to get
 * @inodes: quota of files and directories
 */
struct actmem_mount {
	refcount_t ref;
	u32 policy;
	nodemask_t nodes;
	kuid_t uid;
	kgid_t gid;
	umode_t mode;
	struct actmem_quota pages;
	struct actmem_quota inodes;
};

/* The default of the option nr_inodes=. This many inodes need about 64 MiB of kernel memory. */
#define ACTMEM_INODES_DEFAULT	65536UL

/* Returns NULL for the superblock of unnamed regions. */
static inline struct actmem_mount *actmem_super_mount(const struct super_block *super)
{
	return super->s_fs_info;
}

static inline void actmem_mount_put(struct actmem_mount *mount)
{
	if (refcount_dec_and_test(&mount->ref))
		kfree(mount);
}

/* mount.c */
extern struct file_system_type actmem_fs_type;

/* inode.c */
struct inode *actmem_inode_root(struct super_block *super);
struct inode *actmem_inode_unnamed(struct super_block *super);
void actmem_inode_evict(struct inode *inode);

/* file.c */
extern const struct file_operations actmem_file_operations;

#endif /* _ACTMEM_MOUNT_H */
