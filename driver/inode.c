// SPDX-License-Identifier: GPL-2.0
/*
 * Inodes and names. A file of a mount is created empty, without a region. The file gets a region,
 * and with the region a length, at most once. Each name is only a dentry of the kernel, which stays
 * in memory until the name is removed.
 *
 * A task holds the inode's lock while it gives a file a region or another name.
 */
#include <linux/pagemap.h>
#include <linux/security.h>

#include "actmem.h"
#include "compat/compat.h"
#include "mount.h"

static const struct inode_operations actmem_file_inode_operations;
static const struct inode_operations actmem_directory_operations;

/*
 * Sets the times that @which selects (ATTR_*) to the current time. Uses setattr_copy(), which is
 * the same in all kernels.
 */
static void inode_set_times(struct inode *inode, unsigned int which)
{
	struct timespec64 now = current_time(inode);
	struct iattr attributes = {
		.ia_valid = which,
		.ia_atime = now,
		.ia_mtime = now,
		.ia_ctime = now,
	};

	/* The idmap may be NULL, because this call sets no owner that needs mapping. */
	setattr_copy(NULL, inode, &attributes);
}

/*
 * Allocates an inode. An inode of a mount counts against the mount's limit until the inode is
 * evicted.
 */
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
		/* The link "." of a directory. */
		inc_nlink(inode);
	} else {
		inode->i_op = &actmem_file_inode_operations;
		inode->i_fop = &actmem_file_operations;
		/*
		 * Although the pages cannot move, NUMA balancing would unmap them at intervals, to
		 * see which node uses them. Request a low zone, because NUMA balancing skips files
		 * whose pages must be in such a zone.
		 */
		mapping_set_gfp_mask(inode->i_mapping, GFP_DMA);
	}
	return inode;
}

struct inode *actmem_inode_root(struct super_block *super)
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

/* Lets security modules label the inode. After an error, drops the inode. */
static struct inode *inode_label(struct inode *inode, struct inode *directory,
				 const struct qstr *name)
{
	int err = security_inode_init_security(inode, directory, name, NULL, NULL);

	/* Linux 6.1 returns EOPNOTSUPP if no security module has labels. */
	if (!err || err == -EOPNOTSUPP)
		return inode;
	iput(inode);
	return ERR_PTR(err);
}

/*
 * Makes the inode of an unnamed region. Unlike kernel-internal inodes, the inode is not S_PRIVATE,
 * so security modules decide which processes may use it. The modules label the inode like a file in
 * the root directory.
 */
struct inode *actmem_inode_unnamed(struct super_block *super)
{
	struct inode *inode = inode_alloc(super, S_IFREG | 0600);

	if (IS_ERR(inode))
		return inode;
	/* Without links, watches of the file end when the file's last descriptor is closed. */
	clear_nlink(inode);
	inode->i_uid = current_fsuid();
	inode->i_gid = current_fsgid();
	inode->i_flags |= S_NOATIME | S_NOCMTIME;
	return inode_label(inode, d_inode(super->s_root), &super->s_root->d_name);
}

void actmem_inode_evict(struct inode *inode)
{
	struct actmem_mount *mount = actmem_super_mount(inode->i_sb);
	struct actmem_region *region = inode->i_private;

	clear_inode(inode);
	if (mount)
		actmem_quota_uncharge(&mount->inodes);
	if (!region)	/* a directory, or a file that never got a region */
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

	if (IS_ERR(inode))
		return inode;
	inode_init_owner(idmap, inode, directory, mode);
	return inode_label(inode, directory, &dentry->d_name);
}

static int inode_directory_add(ACTMEM_IDMAP *idmap, struct inode *directory, struct dentry *dentry,
			       umode_t mode)
{
	struct inode *inode = inode_make(idmap, directory, dentry, mode);

	if (IS_ERR(inode))
		return PTR_ERR(inode);
	if (S_ISDIR(mode))
		inc_nlink(directory);
	d_make_persistent(dentry, inode);
	inode_set_times(directory, ATTR_MTIME | ATTR_CTIME);
	return 0;
}

static int actmem_create(ACTMEM_IDMAP *idmap, struct inode *directory, struct dentry *dentry,
			 ACTMEM_CREATE_MODE)
{
	return inode_directory_add(idmap, directory, dentry, mode | S_IFREG);
}

static ACTMEM_MKDIR_RESULT actmem_mkdir(ACTMEM_IDMAP *idmap, struct inode *directory,
					struct dentry *dentry, umode_t mode)
{
	return ACTMEM_MKDIR_RETURN(inode_directory_add(idmap, directory, dentry, mode | S_IFDIR));
}

/* Creates a file without a name. link(2) can name the file later. */
static int actmem_tmpfile(ACTMEM_IDMAP *idmap, struct inode *directory, struct file *file,
			  umode_t mode)
{
	struct inode *inode = inode_make(idmap, directory, file->f_path.dentry, mode | S_IFREG);

	if (!IS_ERR(inode))
		d_tmpfile(file, inode);
	return finish_open_simple(file, PTR_ERR_OR_ZERO(inode));
}

/* Looks up a name. Rejects names that lists of regions cannot show. */
static struct dentry *actmem_lookup(struct inode *directory, struct dentry *dentry,
				    unsigned int flags)
{
	if (dentry->d_name.len >= ACTMEM_NAME_BYTES)
		return ERR_PTR(-ENAMETOOLONG);
	if (!actmem_name_is_valid(dentry->d_name.name, dentry->d_name.len))
		return ERR_PTR(-EINVAL);
	return simple_lookup(directory, dentry, flags);
}

/* If the file has a region, gives the region the file's new name. */
static void inode_name_region(struct inode *inode, const struct dentry *dentry)
{
	struct actmem_region *region = inode->i_private;

	if (region)	/* not an empty file, nor a directory */
		actmem_region_set_name(region, dentry);
}

/*
 * Links a file that was created without a name. Refuses other files: a file has at most one name.
 */
static int actmem_link(struct dentry *old, struct inode *directory, struct dentry *dentry)
{
	int err = d_inode(old)->i_nlink ? -EPERM : simple_link(old, directory, dentry);

	if (!err)
		inode_name_region(d_inode(old), dentry);
	return err;
}

/* Renames a file. The kernel updates the dentries only later, so the new name is still in @new. */
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

	/*
	 * Refuse unnamed regions, because several processes may have a descriptor of such a region.
	 */
	if (!actmem_super_mount(inode->i_sb))
		return -EPERM;
	err = setattr_prepare(idmap, dentry, attributes);
	if (!err && attributes->ia_valid & ATTR_SIZE &&
	    attributes->ia_size != i_size_read(inode))
		err = actmem_create_of_length(inode, attributes->ia_size);
	if (!err)
		setattr_copy(idmap, inode, attributes);
	return err;
}

static const struct inode_operations actmem_file_inode_operations = {
	.setattr = actmem_setattr,
};
