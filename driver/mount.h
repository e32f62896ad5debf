/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The file system, as far as its own files know it: superblocks, their options
 * and limits, and inodes.
 */
#ifndef _ACTMEM_MOUNT_H
#define _ACTMEM_MOUNT_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/nodemask.h>

#include "actmem.h"

/**
 * struct actmem_mount - what a superblock with names was mounted with
 * @ref: held by the superblock and by each of its regions, which may linger
 *	when that has gone
 * @policy: ACTMEM_POLICY_*, of regions that are made without one of their own
 * @nodes: mask of the policy
 * @uid: owner of the root directory at first
 * @gid: its group
 * @mode: its permissions
 * @pages: of its regions, those that they are about to get included
 * @inodes: and further names of them
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

/* Without the option nr_inodes=: some 64 MiB of the kernel's memory. */
#define ACTMEM_INODES_DEFAULT	65536UL

/* NULL of the superblock of unnamed regions. */
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
