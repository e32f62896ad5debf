/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The file system, as far as its own files know it: superblocks, their options
 * and limits, and inodes.
 */
#ifndef _ACTMEM_MOUNT_H
#define _ACTMEM_MOUNT_H

#include <linux/fs.h>
#include <linux/fs_parser.h>
#include <linux/kref.h>
#include <linux/nodemask.h>
#include <linux/spinlock.h>

#include "actmem.h"

struct fs_context;
struct seq_file;

/**
 * struct actmem_mount - what a superblock with names was mounted with
 * @ref: held by the superblock and by each of its regions, which may linger
 *	when that has gone
 * @policy: ACTMEM_POLICY_*, of regions that are made without one of their own
 * @nodes: mask of the policy
 * @uid: owner of the root directory at first
 * @gid: its group
 * @mode: its permissions
 * @lock: see there; held for an instant only
 * @limit: pages that its regions may have, ACTMEM_NO_LIMIT if there is none
 * @reserved: pages that they have or are about to get
 */
struct actmem_mount {
	struct kref ref;
	u32 policy;
	nodemask_t nodes;
	kuid_t uid;
	kgid_t gid;
	umode_t mode;
	/* Protects what follows; taken inside the lock of user.c. */
	spinlock_t lock;
	unsigned long limit;
	unsigned long reserved;
};

/* NULL of the superblock of unnamed regions. */
static inline struct actmem_mount *actmem_super_mount(const struct super_block *super)
{
	return super->s_fs_info;
}

/* fs.c */
int actmem_get_tree(struct fs_context *context);
int actmem_hold_internal_mount(void);
void actmem_release_internal_mount(void);

/* mount.c */
void actmem_mount_usage(struct actmem_mount *mount, unsigned long *limit,
			unsigned long *reserved);
int actmem_mount_set_limit(struct actmem_mount *mount, unsigned long pages,
			   unsigned long *reserved);
unsigned long actmem_mount_capacity(const struct actmem_mount *mount);

/* mount_options.c */
extern const struct fs_parameter_spec actmem_mount_parameters[];
int actmem_init_mount_context(struct fs_context *context);
struct actmem_mount *actmem_mount_alloc(struct fs_context *context);
void actmem_mount_show(struct seq_file *seq, struct actmem_mount *mount);

/* inode.c */
struct inode *actmem_root_inode(struct super_block *super);
struct inode *actmem_unnamed_inode(struct super_block *super);
void actmem_inode_attach(struct inode *inode, struct actmem_region *region);

/* file.c */
extern const struct file_operations actmem_file_operations;

#endif /* _ACTMEM_MOUNT_H */
