// SPDX-License-Identifier: GPL-2.0
/*
 * Creation of regions without pages: unnamed regions for /dev/actmem, and named regions
 * for empty files of a mount.
 */
#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/string.h>

#include "actmem.h"
#include "mount.h"

/* Returns true if the name is printable, contains no '/' and is not too long. */
bool actmem_name_is_valid(const char *name, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (name[i] < ' ' || name[i] > '~' || name[i] == '/')
			return false;
	return length < ACTMEM_NAME_BYTES;
}

static int create_check(const struct actmem_ioctl_create *arg)
{
	if (arg->flags & ~ACTMEM_CREATE_INHERIT || arg->page_bytes != ACTMEM_PAGE_BYTES)
		return -EINVAL;
	if (!arg->length || arg->length % ACTMEM_PAGE_BYTES ||
	    arg->length / ACTMEM_PAGE_BYTES > ACTMEM_MAX_PAGES)
		return -EINVAL;
	if (!actmem_name_is_valid(arg->name, strnlen(arg->name, ACTMEM_NAME_BYTES)))
		return -EINVAL;
	return 0;
}

static int create_fetch(struct actmem_ioctl_create *arg, void __user *user)
{
	int err = actmem_fetch(arg, sizeof(*arg), sizeof(*arg), user);

	if (err)
		return err;
	arg->fd = -1;
	arg->id = 0;
	actmem_no_reason(&arg->why);
	return 0;
}

/* Creates a region. On failure, stores the reason in @arg. */
static struct actmem_region *create_region(struct actmem_ioctl_create *arg,
					   struct actmem_mount *mount)
{
	int err = create_check(arg);
	struct actmem_region *region;

	if (err)
		return ERR_PTR(err);
	region = actmem_region_create(arg, mount);
	if (!IS_ERR(region))
		arg->id = region->id;
	return region;
}

static struct file *create_file(void *context)
{
	struct actmem_region *region = create_region(context, NULL);

	return IS_ERR(region) ? ERR_CAST(region) : actmem_file_make(region);
}

/* Executes ACTMEM_IOC_CREATE on the device. */
int actmem_create_unnamed(void __user *user)
{
	struct actmem_ioctl_create arg;
	int err;

	err = create_fetch(&arg, user);
	if (err)
		return err;
	err = actmem_answer_with_file(user, &arg, sizeof(arg), &arg.fd, create_file, &arg);
	if (!err)
		return 0;
	/* Ignore an error of this call: the caller needs the first error. */
	arg.id = 0;
	(void)actmem_answer(user, &arg, sizeof(arg));
	return err;
}

/*
 * Creates a region for a file of a mount. The caller has locked the inode, so that its
 * name does not change. A file without a name gets one when it is linked.
 */
static struct actmem_region *create_for_file(struct inode *inode, const struct dentry *dentry,
					     struct actmem_ioctl_create *arg)
{
	struct actmem_mount *mount = actmem_super_mount(inode->i_sb);
	int node;

	lockdep_assert_held_write(&inode->i_rwsem);
	if (inode->i_private)
		return ERR_PTR(-EEXIST);
	if (inode->i_nlink)
		strscpy_pad(arg->name, dentry->d_name.name, sizeof(arg->name));
	if (arg->policy == ACTMEM_POLICY_PREFERRED &&
	    !memchr_inv(arg->nodes, 0, sizeof(arg->nodes))) {
		arg->policy = mount->policy;
		for_each_node_mask(node, mount->nodes)
			arg->nodes[node / 64] |= 1ULL << (node % 64);
	}
	return create_region(arg, mount);
}

/* Executes ACTMEM_IOC_CREATE on the descriptor of a file. */
int actmem_create_named(struct file *file, void __user *user)
{
	struct inode *inode = file_inode(file);
	struct actmem_ioctl_create arg, made;
	struct actmem_region *region;
	int err;

	/* The file of an unnamed region always has a region. */
	if (!actmem_super_mount(inode->i_sb))
		return -ENOTTY;
	err = create_fetch(&arg, user);
	if (err)
		return err;
	if (*arg.name)
		return -EINVAL;
	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;

	made = arg;
	inode_lock(inode);
	region = create_for_file(inode, file_dentry(file), &made);
	arg.id = made.id;
	arg.why = made.why;
	/*
	 * Copy the result to user space first, because a region cannot be detached from
	 * its file.
	 */
	err = actmem_answer(user, &arg, sizeof(arg));
	if (IS_ERR(region))
		err = PTR_ERR(region);
	else if (err)
		actmem_region_retire(region);
	else
		actmem_inode_attach(inode, region);
	inode_unlock(inode);
	return err;
}

/*
 * Creates a region of this length for an empty file of a mount, with the mount's
 * policy. The caller has locked the inode. Returns EPERM if the file already has a
 * region, because other processes may have mapped it.
 */
int actmem_create_of_length(struct inode *inode, const struct dentry *dentry, loff_t length)
{
	struct actmem_ioctl_create arg = {
		.length = length,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.policy = ACTMEM_POLICY_PREFERRED,
	};
	struct actmem_region *region;

	if (inode->i_private)
		return -EPERM;
	region = create_for_file(inode, dentry, &arg);
	if (!IS_ERR(region))
		actmem_inode_attach(inode, region);
	return PTR_ERR_OR_ZERO(region);
}
