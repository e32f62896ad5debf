// SPDX-License-Identifier: GPL-2.0
/*
 * The file system that regions live on. Each region is a file with an inode
 * and a size of its own: without i_size the kernel maps no huge page.
 *
 * The superblock holds the reference to the module (fs_type.owner); each open
 * file holds the mount, and with it the superblock. So the module can go as
 * soon as the last region is gone, and the file operations need no owner.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>

#include "actmem.h"
#include "compat/compat.h"

#define ACTMEM_FS_MAGIC	0x6163746d	/* "actm" */

static struct file_system_type actmem_fs_type;
static struct vfsmount *actmem_mount;
static int actmem_mount_users;

/* The length, owner and mode of a region are fixed when it is created. */
static int actmem_setattr(ACTMEM_SETATTR_CONTEXT *context, struct dentry *dentry,
			  struct iattr *attributes)
{
	return -EPERM;
}

static const struct inode_operations actmem_inode_operations = {
	.setattr = actmem_setattr,
};

/*
 * Open files keep the mount where the next region finds it. It is the file
 * that does so, not the inode: whoever watches an inode may be the last to let
 * go of it, and the superblock's end waits for the watchers.
 */
static int hold_mount(void)
{
	return simple_pin_fs(&actmem_fs_type, &actmem_mount, &actmem_mount_users);
}

static void release_mount(void)
{
	simple_release_fs(&actmem_mount, &actmem_mount_users);
}

static int actmem_open(struct inode *inode, struct file *file)
{
	return hold_mount();
}

static int actmem_release(struct inode *inode, struct file *file)
{
	release_mount();
	return 0;
}

static const struct file_operations actmem_file_operations = {
	.open = actmem_open,
	.release = actmem_release,
	.llseek = generic_file_llseek,
	.mmap = actmem_mmap,
	.get_unmapped_area = actmem_get_unmapped_area,
	.unlocked_ioctl = actmem_region_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = actmem_uring_cmd,
	.fsync = noop_fsync,
	.show_fdinfo = actmem_show_fdinfo,
};

bool actmem_is_region(const struct file *file)
{
	return file->f_op == &actmem_file_operations;
}

static void actmem_evict_inode(struct inode *inode)
{
	struct actmem_region *region = inode->i_private;

	clear_inode(inode);
	if (!region)	/* the root */
		return;
	spin_lock(&region->lock);
	region->inode = NULL;
	spin_unlock(&region->lock);
	actmem_region_retire(region);
}

static const struct super_operations actmem_super_operations = {
	.statfs = simple_statfs,
	.evict_inode = actmem_evict_inode,
};

static int actmem_init_fs_context(struct fs_context *context)
{
	struct pseudo_fs_context *pseudo = init_pseudo(context, ACTMEM_FS_MAGIC);

	if (!pseudo)
		return -ENOMEM;
	context->s_iflags |= SB_I_NOEXEC | SB_I_NODEV;
	pseudo->ops = &actmem_super_operations;
	return 0;
}

static struct file_system_type actmem_fs_type = {
	.owner = THIS_MODULE,
	.name = "actmem",
	.init_fs_context = actmem_init_fs_context,
	.kill_sb = kill_anon_super,
};

static struct inode *new_region_inode(struct actmem_region *region)
{
	struct inode *inode = new_inode(actmem_mount->mnt_sb);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	/* It has no name: its watchers lose it with the last descriptor. */
	clear_nlink(inode);
	inode->i_mode = S_IFREG | 0600;
	inode->i_uid = current_fsuid();
	inode->i_gid = current_fsgid();
	inode->i_size = region->page_count * ACTMEM_PAGE_BYTES;
	inode->i_blkbits = HPAGE_PMD_SHIFT;
	inode_set_bytes(inode, region->pages_held * ACTMEM_PAGE_BYTES);
	/*
	 * Private: a file without a name has no label, so that security modules
	 * have nothing to judge it by. As with anonymous inodes, having the
	 * descriptor is the permission.
	 */
	inode->i_flags |= S_PRIVATE | S_NOATIME | S_NOCMTIME;
	inode->i_op = &actmem_inode_operations;
	inode->i_fop = &actmem_file_operations;
	actmem_inode_init_times(inode);
	return inode;
}

/*
 * Makes the file of a region and hands the region over to it, also when that
 * fails.
 */
struct file *actmem_fs_open(struct actmem_region *region)
{
	char name[sizeof("actmem:") + ACTMEM_NAME_BYTES];
	struct inode *inode;
	struct file *file;
	int err;

	snprintf(name, sizeof(name), "actmem:%s", region->name);
	/* The file's own, as it does not come by actmem_open(). */
	err = hold_mount();
	if (err)
		goto retire;
	inode = new_region_inode(region);
	if (!inode) {
		err = -ENOMEM;
		goto release_mount;
	}
	inode->i_private = region;
	region->inode = inode;
	file = alloc_file_pseudo(inode, actmem_mount, name, O_RDWR, &actmem_file_operations);
	if (IS_ERR(file)) {
		iput(inode);
		release_mount();
	}
	return file;

release_mount:
	release_mount();
retire:
	actmem_region_retire(region);
	return ERR_PTR(err);
}
