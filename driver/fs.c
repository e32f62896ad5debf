// SPDX-License-Identifier: GPL-2.0
/*
 * The file system that regions live on. Each region is a file with an inode
 * and a size of its own: without i_size the kernel maps no huge page.
 *
 * The superblock holds the reference to the module (fs_type.owner); each
 * inode pins the superblock. So the module can go as soon as the last region
 * is gone, and the file operations need no owner.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>

#include "actmem.h"
#include "compat/compat.h"

#define ACTMEM_FS_MAGIC	0x6163746d	/* "actm" */

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

static const struct file_operations actmem_file_operations = {
	.llseek = generic_file_llseek,
	.mmap = actmem_mmap,
	.get_unmapped_area = actmem_get_unmapped_area,
	.unlocked_ioctl = actmem_region_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.show_fdinfo = actmem_show_fdinfo,
};

static void actmem_evict_inode(struct inode *inode)
{
	struct actmem_region *region = inode->i_private;

	clear_inode(inode);
	if (!region)	/* the root */
		return;
	actmem_region_retire(region);
	/* Never the last pin: the file that is being closed has one. */
	actmem_fs_put();
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

int actmem_fs_get(void)
{
	return simple_pin_fs(&actmem_fs_type, &actmem_mount, &actmem_mount_users);
}

void actmem_fs_put(void)
{
	simple_release_fs(&actmem_mount, &actmem_mount_users);
}

static struct inode *new_region_inode(struct actmem_region *region)
{
	struct inode *inode = new_inode(actmem_mount->mnt_sb);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	inode->i_mode = S_IFREG | 0600;
	inode->i_uid = current_fsuid();
	inode->i_gid = current_fsgid();
	inode->i_size = region->page_count * ACTMEM_PAGE_BYTES;
	inode->i_blkbits = HPAGE_PMD_SHIFT;
	inode->i_blocks = inode->i_size / 512;
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
 * fails. The caller holds the file system.
 */
struct file *actmem_fs_open(struct actmem_region *region)
{
	char name[sizeof("actmem:") + ACTMEM_NAME_BYTES];
	struct inode *inode;
	struct file *file;

	snprintf(name, sizeof(name), "actmem:%s", region->name);
	inode = new_region_inode(region);
	if (!inode) {
		actmem_region_retire(region);
		return ERR_PTR(-ENOMEM);
	}
	/* Cannot fail: the caller's pin keeps the mount. */
	WARN_ON_ONCE(actmem_fs_get());
	inode->i_private = region;

	file = alloc_file_pseudo(inode, actmem_mount, name, O_RDWR, &actmem_file_operations);
	if (IS_ERR(file))
		iput(inode);
	return file;
}
