// SPDX-License-Identifier: GPL-2.0
/*
 * Making regions, without pages: unnamed ones for /dev/actmem, and those of a mount for
 * files that have none yet.
 */
#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/string.h>

#include "actmem.h"
#include "mount.h"

/* Printable, and not a path. */
bool actmem_name_is_valid(const char *name, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (name[i] < ' ' || name[i] > '~' || name[i] == '/')
			return false;
	return length < ACTMEM_NAME_BYTES;
}

static bool create_label_is_valid(const char name[ACTMEM_NAME_BYTES])
{
	return actmem_name_is_valid(name, strnlen(name, ACTMEM_NAME_BYTES));
}

static int create_check(const struct actmem_ioctl_create *arg)
{
	if (arg->flags & ~ACTMEM_CREATE_INHERIT || arg->page_bytes != ACTMEM_PAGE_BYTES)
		return -EINVAL;
	if (!arg->length || arg->length % ACTMEM_PAGE_BYTES ||
	    arg->length / ACTMEM_PAGE_BYTES > ACTMEM_MAX_PAGES)
		return -EINVAL;
	return create_label_is_valid(arg->name) ? 0 : -EINVAL;
}

/* The reasons for a failure are told in @arg. */
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

	return IS_ERR(region) ? ERR_CAST(region) : actmem_fs_open(region);
}

/* ACTMEM_IOC_CREATE on the device. */
int actmem_create_unnamed(void __user *user)
{
	struct actmem_ioctl_create arg;
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	arg.id = 0;
	actmem_no_reason(&arg.why);
	err = actmem_answer_with_file(user, &arg, sizeof(arg), &arg.fd, create_file, &arg);
	if (!err)
		return 0;
	/* The first error is the one that matters. */
	arg.id = 0;
	(void)actmem_answer(user, &arg, sizeof(arg));
	return err;
}

static void create_use_mount_policy(struct actmem_ioctl_create *arg,
				    const struct actmem_mount *mount)
{
	int node;

	if (arg->policy != ACTMEM_POLICY_PREFERRED ||
	    memchr_inv(arg->nodes, 0, sizeof(arg->nodes)))
		return;
	arg->policy = mount->policy;
	for_each_node_mask(node, mount->nodes)
		arg->nodes[node / 64] |= 1ULL << (node % 64);
}

/* A region for an empty file of a mount, by the policy that it has there. */
static struct actmem_region *create_for_mount(const struct inode *inode,
					      struct actmem_ioctl_create *arg)
{
	struct actmem_mount *mount = actmem_super_mount(inode->i_sb);

	create_use_mount_policy(arg, mount);
	return create_region(arg, mount);
}

/* The file has the region from here on, by the name that it has now, unless it has one. */
static int create_attach(struct inode *inode, const struct dentry *dentry,
			 struct actmem_region *region)
{
	lockdep_assert_held_write(&inode->i_rwsem);
	if (inode->i_private)
		return -EEXIST;
	/* A file without a name is given one when it is linked. */
	if (inode->i_nlink) {
		spin_lock(&region->lock);
		strscpy_pad(region->name, dentry->d_name.name, sizeof(region->name));
		spin_unlock(&region->lock);
	}
	actmem_inode_attach(inode, region);
	return 0;
}

/* ACTMEM_IOC_CREATE on a file's own descriptor; EEXIST if somebody was faster. */
int actmem_create_named(struct file *file, void __user *user)
{
	struct inode *inode = file_inode(file);
	struct actmem_ioctl_create arg, made;
	struct actmem_region *region;
	int err, unanswered;

	/* An unnamed region never was without one. */
	if (!actmem_super_mount(inode->i_sb))
		return -ENOTTY;
	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	if (*arg.name)
		return -EINVAL;
	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;
	arg.fd = -1;
	arg.id = 0;
	actmem_no_reason(&arg.why);
	if (actmem_file_region(file))
		return -EEXIST;

	made = arg;
	region = create_for_mount(inode, &made);
	arg.why = made.why;
	arg.id = IS_ERR(region) ? 0 : made.id;
	unanswered = actmem_answer(user, &arg, sizeof(arg));
	if (IS_ERR(region))
		return PTR_ERR(region);
	err = unanswered;
	if (!err) {
		inode_lock(inode);
		err = create_attach(inode, file_dentry(file), region);
		inode_unlock(inode);
	}
	if (err) {
		actmem_region_retire(region);
		arg.id = 0;
		(void)actmem_answer(user, &arg, sizeof(arg));
	}
	return err;
}

/*
 * Gives an empty file of a mount, whose inode is locked, a region of this length, by the
 * mount's policy.
 */
int actmem_create_for_file(struct inode *inode, const struct dentry *dentry, loff_t length)
{
	struct actmem_ioctl_create arg = {
		.length = length,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.policy = ACTMEM_POLICY_PREFERRED,
	};
	struct actmem_region *region;
	int err;

	region = create_for_mount(inode, &arg);
	if (IS_ERR(region))
		return PTR_ERR(region);
	err = create_attach(inode, dentry, region);
	if (err)
		actmem_region_retire(region);
	return err;
}
