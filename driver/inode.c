// SPDX-License-Identifier: GPL-2.0
/*
 * Inodes and names. A file of a mount begins empty, without a region, and is
 * given one, and with it its length, once. The names are the kernel's: a dentry
 * that is there until it is removed.
 *
 * A file is given its region, and other names, under the inode's lock.
 */
#include <linux/security.h>
#include <linux/string.h>

#include "actmem.h"
#include "compat/compat.h"
#include "mount.h"

static const struct inode_operations actmem_file_inode_operations;
static const struct inode_operations actmem_directory_operations;

/* To those of the clock, by the one way that is the same in all kernels. */
static void inode_set_times(struct inode *inode, unsigned int which)
{
	struct timespec64 now = current_time(inode);
	struct iattr attributes = {
		.ia_valid = which,
		.ia_atime = now,
		.ia_mtime = now,
		.ia_ctime = now,
	};

	/* No owner is set, which alone would need to be mapped. */
	setattr_copy(NULL, inode, &attributes);
}

/* Counts for the mount, if it has one, until it is evicted. */
static struct inode *inode_alloc(struct super_block *super, umode_t mode)
{
	struct actmem_mount *mount = actmem_super_mount(super);
	struct inode *inode;

	if (mount && !actmem_quota_charge(&mount->inodes))
		return ERR_PTR(-ENOSPC);
	inode = new_inode(super);
	if (!inode) {
		if (mount)
			actmem_quota_uncharge(&mount->inodes);
		return ERR_PTR(-ENOMEM);
	}
	inode->i_ino = get_next_ino();
	inode->i_mode = mode;
	inode_set_times(inode, ATTR_ATIME | ATTR_MTIME | ATTR_CTIME);
	if (S_ISDIR(mode)) {
		inode->i_op = &actmem_directory_operations;
		inode->i_fop = &simple_dir_operations;
		/* Its own name for itself. */
		inc_nlink(inode);
	} else {
		inode->i_op = &actmem_file_inode_operations;
		inode->i_fop = &actmem_file_operations;
	}
	return inode;
}

struct inode *actmem_root_inode(struct super_block *super)
{
	const struct actmem_mount *mount = actmem_super_mount(super);
	struct inode *inode = inode_alloc(super, S_IFDIR | (mount ? mount->mode : 0));

	if (IS_ERR(inode))
		return NULL;
	if (mount) {
		inode->i_uid = mount->uid;
		inode->i_gid = mount->gid;
	}
	return inode;
}

struct inode *actmem_unnamed_inode(struct super_block *super)
{
	struct inode *inode = inode_alloc(super, S_IFREG | 0600);

	if (IS_ERR(inode))
		return inode;
	/* It has no name: its watchers lose it with the last descriptor. */
	clear_nlink(inode);
	inode->i_uid = current_fsuid();
	inode->i_gid = current_fsgid();
	/*
	 * Private: a file without a name has no label, so that security modules
	 * have nothing to judge it by. As with anonymous inodes, having the
	 * descriptor is the permission.
	 */
	inode->i_flags |= S_PRIVATE | S_NOATIME | S_NOCMTIME;
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

void actmem_evict_inode(struct inode *inode)
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

static struct inode *inode_make(ACTMEM_IDMAP *idmap, struct inode *directory,
				struct dentry *dentry, umode_t mode)
{
	struct inode *inode = inode_alloc(directory->i_sb, mode);
	int err;

	if (IS_ERR(inode))
		return inode;
	inode_init_owner(idmap, inode, directory, mode);
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
	inode_set_times(directory, ATTR_MTIME | ATTR_CTIME);
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

	if (!IS_ERR(inode))
		d_tmpfile(file, inode);
	return finish_open_simple(file, PTR_ERR_OR_ZERO(inode));
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

/* The region, if there is one, is known by the name that its file was given last. */
static void inode_name_region(struct inode *inode, const struct dentry *dentry)
{
	struct actmem_region *region = inode->i_private;

	if (!region)	/* of a directory, too */
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

static int actmem_setattr(ACTMEM_IDMAP *idmap, struct dentry *dentry, struct iattr *attributes)
{
	struct inode *inode = d_inode(dentry);
	int err;

	/* An unnamed region stays as it is for all who have its descriptor. */
	if (!actmem_super_mount(inode->i_sb))
		return -EPERM;
	err = setattr_prepare(idmap, dentry, attributes);
	if (!err && attributes->ia_valid & ATTR_SIZE &&
	    attributes->ia_size != i_size_read(inode))
		err = actmem_create_of_length(inode, dentry, attributes->ia_size);
	if (!err)
		setattr_copy(idmap, inode, attributes);
	return err;
}

static const struct inode_operations actmem_file_inode_operations = {
	.setattr = actmem_setattr,
};
