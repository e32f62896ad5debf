// SPDX-License-Identifier: GPL-2.0
/*
 * The file system that regions live on: superblocks and mounts. Each region is a
 * file with an inode and a size of its own: without i_size the kernel maps no huge
 * page.
 *
 * Unnamed regions are on a superblock of the driver's own, which is there for as
 * long as any of them is open. Each mount of the file system is one with names
 * (inode.c) and a limit (mount.c).
 *
 * A superblock holds the reference to the module (fs_type.owner); each open file
 * holds its mount, and with it the superblock. So the module can go as soon as
 * nothing is mounted and the last region is gone, and the file operations need no
 * owner.
 */
#include <linux/file.h>
#include <linux/fs_context.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/statfs.h>

#include "actmem.h"
#include "compat/compat.h"
#include "mount.h"

static struct file_system_type actmem_fs_type;
static struct vfsmount *internal_mount;
static int internal_mount_users;

/*
 * Open files keep the mount where the next region finds it. It is the file
 * that does so, not the inode: whoever watches an inode may be the last to let
 * go of it, and the superblock's end waits for the watchers.
 */
int actmem_hold_internal_mount(void)
{
	return simple_pin_fs(&actmem_fs_type, &internal_mount, &internal_mount_users);
}

void actmem_release_internal_mount(void)
{
	simple_release_fs(&internal_mount, &internal_mount_users);
}

static void actmem_evict_inode(struct inode *inode)
{
	struct actmem_mount *mount = actmem_super_mount(inode->i_sb);
	struct actmem_region *region = inode->i_private;

	clear_inode(inode);
	if (mount)
		actmem_quota_uncharge(&mount->inodes);
	if (!region)	/* a directory, or a file that was given none */
		return;
	mutex_lock(&region->unmap_lock);
	spin_lock(&region->lock);
	region->inode = NULL;
	spin_unlock(&region->lock);
	mutex_unlock(&region->unmap_lock);
	actmem_region_retire(region);
}

/* Pages of the mount's regions and their limit; without one, the pages of its nodes. */
static int actmem_statfs(struct dentry *dentry, struct kstatfs *stat)
{
	struct actmem_mount *mount = actmem_super_mount(dentry->d_sb);
	struct actmem_quota pages, inodes;
	int err = simple_statfs(dentry, stat);

	if (err || !mount)
		return err;
	pages = actmem_quota_read(&mount->pages);
	if (pages.limit == ACTMEM_NO_LIMIT)
		pages.limit = actmem_mount_capacity(mount);
	stat->f_bsize = ACTMEM_PAGE_BYTES;
	stat->f_blocks = max(pages.limit, pages.used);
	stat->f_bfree = stat->f_blocks - pages.used;
	stat->f_bavail = stat->f_bfree;
	stat->f_namelen = ACTMEM_NAME_BYTES - 1;
	inodes = actmem_quota_read(&mount->inodes);
	if (inodes.limit != ACTMEM_NO_LIMIT) {
		stat->f_files = inodes.limit;
		stat->f_ffree = inodes.limit - min(inodes.limit, inodes.used);
	}
	return 0;
}

static int actmem_show_options(struct seq_file *seq, struct dentry *root)
{
	actmem_mount_show(seq, actmem_super_mount(root->d_sb));
	return 0;
}

static const struct super_operations actmem_internal_operations = {
	.statfs = actmem_statfs,
	.evict_inode = actmem_evict_inode,
};

static const struct super_operations actmem_super_operations = {
	.statfs = actmem_statfs,
	.evict_inode = actmem_evict_inode,
	.show_options = actmem_show_options,
};

static int actmem_fill_super(struct super_block *super, struct fs_context *context)
{
	struct actmem_mount *mount;

	mount = actmem_mount_alloc(context);
	if (!mount)
		return -ENOMEM;
	super->s_fs_info = mount;
	super->s_magic = ACTMEM_SUPER_MAGIC;
	super->s_op = &actmem_super_operations;
	super->s_maxbytes = ACTMEM_MAX_PAGES * ACTMEM_PAGE_BYTES;
	super->s_blocksize = ACTMEM_PAGE_BYTES;
	super->s_blocksize_bits = HPAGE_PMD_SHIFT;
	super->s_time_gran = 1;
	super->s_iflags |= SB_I_NOEXEC | SB_I_NODEV;
	super->s_root = d_make_root(actmem_root_inode(super));
	return super->s_root ? 0 : -ENOMEM;
}

int actmem_get_tree(struct fs_context *context)
{
	return get_tree_nodev(context, actmem_fill_super);
}

static int init_internal_context(struct fs_context *context)
{
	struct pseudo_fs_context *pseudo = init_pseudo(context, ACTMEM_SUPER_MAGIC);

	if (!pseudo)
		return -ENOMEM;
	context->s_iflags |= SB_I_NOEXEC | SB_I_NODEV;
	pseudo->ops = &actmem_internal_operations;
	return 0;
}

/* Nobody but the kernel, that is actmem_hold_internal_mount(), has that flag. */
static int actmem_init_fs_context(struct fs_context *context)
{
	if (context->sb_flags & SB_KERNMOUNT)
		return init_internal_context(context);
	return actmem_init_mount_context(context);
}

static void actmem_kill_super(struct super_block *super)
{
	struct actmem_mount *mount = actmem_super_mount(super);

	actmem_kill_anon_super(super);
	if (mount)
		actmem_mount_put(mount);
}

/*
 * A user namespace's root may not mount it: a mount has pages of the machine for
 * as long as it is there, whether or not anybody whom they count for is.
 */
static struct file_system_type actmem_fs_type = {
	.owner = THIS_MODULE,
	.name = "actmem",
	.init_fs_context = actmem_init_fs_context,
	.parameters = actmem_mount_parameters,
	.kill_sb = actmem_kill_super,
};

MODULE_ALIAS_FS("actmem");

int actmem_fs_init(void)
{
	return register_filesystem(&actmem_fs_type);
}

void actmem_fs_exit(void)
{
	unregister_filesystem(&actmem_fs_type);
}

/*
 * Makes the file of an unnamed region and hands the region over to it, also when
 * that fails.
 */
struct file *actmem_fs_open(struct actmem_region *region)
{
	char name[sizeof("actmem:") + ACTMEM_NAME_BYTES];
	struct inode *inode;
	struct file *file;
	int err;

	snprintf(name, sizeof(name), "actmem:%s", region->name);
	/* The file's own, as it does not come by way of open(). */
	err = actmem_hold_internal_mount();
	if (err)
		goto retire;
	inode = actmem_unnamed_inode(internal_mount->mnt_sb);
	if (!inode) {
		err = -ENOMEM;
		goto release_mount;
	}
	actmem_inode_attach(inode, region);
	/* As open() has it for every file of a 64-bit task: read(2) passes 2 GiB, too. */
	file = alloc_file_pseudo(inode, internal_mount, name, O_RDWR | O_LARGEFILE,
				 &actmem_file_operations);
	if (IS_ERR(file)) {
		iput(inode);
		actmem_release_internal_mount();
		return file;
	}
	file->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE;
	return file;

release_mount:
	actmem_release_internal_mount();
retire:
	actmem_region_retire(region);
	return ERR_PTR(err);
}
