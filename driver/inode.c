// SPDX-License-Identifier: GPL-2.0
/*
 * Inodes and names. A file of a mount begins empty, without a region, and is
 * given one, and with it its length, once. The names are the kernel's: a dentry
 * that is there until it is removed.
 *
 * A file is given its region, and other names, under the inode's lock.
 */
#include <linux/module.h>
#include <linux/security.h>
#include <linux/slab.h>

#include "actmem.h"
#include "compat/compat.h"
#include "mount.h"

static const struct inode_operations actmem_file_inode_operations;
static const struct inode_operations actmem_directory_operations;

static struct inode *inode_alloc(struct super_block *super)
{
	struct inode *inode = new_inode(super);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	inode->i_blkbits = HPAGE_PMD_SHIFT;
	actmem_inode_init_times(inode);
	return inode;
}

/* Counts for the mount until it is evicted. */
static struct inode *inode_alloc_counted(struct super_block *super)
{
	struct actmem_mount *mount = actmem_super_mount(super);
	struct inode *inode;

	if (!actmem_quota_charge(&mount->inodes))
		return ERR_PTR(-ENOSPC);
	inode = inode_alloc(super);
	if (inode)
		return inode;
	actmem_quota_uncharge(&mount->inodes);
	return ERR_PTR(-ENOMEM);
}

static void inode_become_file(struct inode *inode)
{
	inode->i_op = &actmem_file_inode_operations;
	inode->i_fop = &actmem_file_operations;
}

static void inode_become_directory(struct inode *inode)
{
	inode->i_op = &actmem_directory_operations;
	inode->i_fop = &simple_dir_operations;
	/* Its own name for itself. */
	inc_nlink(inode);
}

struct inode *actmem_root_inode(struct super_block *super)
{
	const struct actmem_mount *mount = actmem_super_mount(super);
	struct inode *inode = inode_alloc_counted(super);

	if (IS_ERR(inode))
		return NULL;
	inode->i_mode = S_IFDIR | mount->mode;
	inode->i_uid = mount->uid;
	inode->i_gid = mount->gid;
	inode_become_directory(inode);
	return inode;
}

struct inode *actmem_unnamed_inode(struct super_block *super)
{
	struct inode *inode = inode_alloc(super);

	if (!inode)
		return NULL;
	/* It has no name: its watchers lose it with the last descriptor. */
	clear_nlink(inode);
	inode->i_mode = S_IFREG | 0600;
	inode->i_uid = current_fsuid();
	inode->i_gid = current_fsgid();
	/*
	 * Private: a file without a name has no label, so that security modules
	 * have nothing to judge it by. As with anonymous inodes, having the
	 * descriptor is the permission.
	 */
	inode->i_flags |= S_PRIVATE | S_NOATIME | S_NOCMTIME;
	inode_become_file(inode);
	return inode;
}

/* The region is the file's from here on, and goes with it. */
void actmem_inode_attach(struct inode *inode, struct actmem_region *region)
{
	spin_lock(&region->lock);
	region->inode = inode;
	inode_set_bytes(inode, region->pages_held * ACTMEM_PAGE_BYTES);
	spin_unlock(&region->lock);
	i_size_write(inode, region->page_count * ACTMEM_PAGE_BYTES);
	/* Pairs with actmem_file_region(). */
	smp_store_release(&inode->i_private, region);
}

static struct inode *inode_make(ACTMEM_IDMAP *idmap, struct inode *directory,
				struct dentry *dentry, umode_t mode)
{
	struct inode *inode = inode_alloc_counted(directory->i_sb);
	int err;

	if (IS_ERR(inode))
		return inode;
	inode_init_owner(idmap, inode, directory, mode);
	if (S_ISDIR(mode))
		inode_become_directory(inode);
	else
		inode_become_file(inode);
	err = security_inode_init_security(inode, directory, &dentry->d_name, NULL, NULL);
	/* Linux 6.1 says that where no security module has labels. */
	if (!err || err == -EOPNOTSUPP)
		return inode;
	iput(inode);
	return ERR_PTR(err);
}

static int directory_add(ACTMEM_IDMAP *idmap, struct inode *directory, struct dentry *dentry,
			 umode_t mode)
{
	struct inode *inode = inode_make(idmap, directory, dentry, mode);

	if (IS_ERR(inode))
		return PTR_ERR(inode);
	if (S_ISDIR(mode))
		inc_nlink(directory);
	actmem_d_make_persistent(dentry, inode);
	actmem_directory_changed(directory);
	return 0;
}

static int actmem_create(ACTMEM_IDMAP *idmap, struct inode *directory, struct dentry *dentry,
			 ACTMEM_CREATE_MODE)
{
	return directory_add(idmap, directory, dentry, mode | S_IFREG);
}

static ACTMEM_MKDIR_RESULT actmem_mkdir(ACTMEM_IDMAP *idmap, struct inode *directory,
					struct dentry *dentry, umode_t mode)
{
	return ACTMEM_MKDIR_RETURN(directory_add(idmap, directory, dentry, mode | S_IFDIR));
}

/* A file without a name, until it is linked. */
static int actmem_tmpfile(ACTMEM_IDMAP *idmap, struct inode *directory, struct file *file,
			  umode_t mode)
{
	struct inode *inode = inode_make(idmap, directory, file->f_path.dentry, mode | S_IFREG);

	if (IS_ERR(inode))
		return finish_open_simple(file, PTR_ERR(inode));
	d_tmpfile(file, inode);
	return finish_open_simple(file, 0);
}

/* Lists of regions show the name to people. */
static struct dentry *actmem_lookup(struct inode *directory, struct dentry *dentry,
				    unsigned int flags)
{
	if (dentry->d_name.len >= ACTMEM_NAME_BYTES)
		return ERR_PTR(-ENAMETOOLONG);
	if (!actmem_name_is_valid(dentry->d_name.name, dentry->d_name.len))
		return ERR_PTR(-EINVAL);
	return simple_lookup(directory, dentry, flags);
}

/* The region is known by the name that its file was given last. */
static void inode_name_region(struct inode *inode, const struct dentry *dentry)
{
	struct actmem_region *region = inode && S_ISREG(inode->i_mode) ? inode->i_private : NULL;

	if (!region)
		return;
	spin_lock(&region->lock);
	strscpy_pad(region->name, dentry->d_name.name, sizeof(region->name));
	spin_unlock(&region->lock);
}

/* For a file that was made without a name: each has one at most. */
static int actmem_link(struct dentry *old, struct inode *directory, struct dentry *dentry)
{
	int err = d_inode(old)->i_nlink ? -EPERM : simple_link(old, directory, dentry);

	if (!err)
		inode_name_region(d_inode(old), dentry);
	return err;
}

/* Where it is to go is still a dentry of its own here, with the new name. */
static int actmem_rename(ACTMEM_IDMAP *idmap, struct inode *from, struct dentry *old,
			 struct inode *to, struct dentry *new, unsigned int flags)
{
	int err = simple_rename(idmap, from, old, to, new, flags);

	if (err)
		return err;
	inode_name_region(d_inode(old), new);
	if (flags & RENAME_EXCHANGE)
		inode_name_region(d_inode(new), old);
	return 0;
}

static const struct inode_operations actmem_directory_operations = {
	.lookup = actmem_lookup,
	.create = actmem_create,
	.mkdir = actmem_mkdir,
	.tmpfile = actmem_tmpfile,
	.link = actmem_link,
	.unlink = simple_unlink,
	.rmdir = simple_rmdir,
	.rename = actmem_rename,
};

/* The first length is for good: others may have it mapped. */
static int inode_set_length(struct inode *inode, const struct dentry *dentry, loff_t length)
{
	if (length == i_size_read(inode))
		return 0;
	if (inode->i_private)
		return -EPERM;
	return actmem_create_for_file(inode, dentry, length);
}

static int actmem_setattr(ACTMEM_IDMAP *idmap, struct dentry *dentry, struct iattr *attributes)
{
	struct inode *inode = d_inode(dentry);
	int err;

	/* An unnamed region stays as it is for all who have its descriptor. */
	if (!actmem_super_mount(inode->i_sb))
		return -EPERM;
	err = setattr_prepare(idmap, dentry, attributes);
	if (!err && attributes->ia_valid & ATTR_SIZE)
		err = inode_set_length(inode, dentry, attributes->ia_size);
	if (!err)
		setattr_copy(idmap, inode, attributes);
	return err;
}

static const struct inode_operations actmem_file_inode_operations = {
	.setattr = actmem_setattr,
};
