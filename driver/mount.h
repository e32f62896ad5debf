/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations that only the files of the file system share: superblocks, their options
 * and limits, and inodes.
 */
#ifndef _ACTMEM_MOUNT_H
#define _ACTMEM_MOUNT_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/nodemask.h>

#include "actmem.h"

/**
 * struct actmem_mount - options and limits of a superblock with names
 * @ref: held by the superblock and by each of its regions, because a lingering region
 *	may outlive the superblock
 * @policy: ACTMEM_POLICY_*, for regions that are created without their own policy
 * @nodes: mask of the policy
 * @uid: initial owner of the root directory
 * @gid: initial group of the root directory
 * @mode: initial permissions of the root directory
 * @pages: quota of pages, including those that regions are about to get
 * @inodes: quota of files and directories
 */
struct actmem_mount {
	struct kref ref;
	u32 policy;
	nodemask_t nodes;
	kuid_t uid;
	kgid_t gid;
	umode_t mode;
	struct actmem_quota pages;
	struct actmem_quota inodes;
};

/* The default of the option nr_inodes=: about 64 MiB of kernel memory. */
#define ACTMEM_INODES_DEFAULT	65536UL

/* Returns NULL for the superblock of unnamed regions. */
static inline struct actmem_mount *actmem_super_mount(const struct super_block *super)
{
	return super->s_fs_info;
}

/* mount.c */
extern struct file_system_type actmem_fs_type;
void actmem_mount_put(struct actmem_mount *mount);

/* inode.c */
struct inode *actmem_root_inode(struct super_block *super);
struct inode *actmem_unnamed_inode(struct super_block *super);
void actmem_inode_attach(struct inode *inode, struct actmem_region *region);
void actmem_evict_inode(struct inode *inode);

/* file.c */
extern const struct file_operations actmem_file_operations;

#endif /* _ACTMEM_MOUNT_H */
