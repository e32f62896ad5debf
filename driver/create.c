// SPDX-License-Identifier: GPL-2.0
/* Creates regions without pages, for /dev/actmem and for empty files of a mount. */
#include <linux/dcache.h>
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

/* Creates a region, and stores the region's id in @arg. On failure, stores the reason in @arg. */
struct actmem_region *actmem_create_region(struct actmem_ioctl_create *arg,
					   struct actmem_mount *mount)
{
	if (arg->flags & ~ACTMEM_CREATE_INHERIT || arg->page_bytes != ACTMEM_PAGE_BYTES ||
	    !arg->length || arg->length % ACTMEM_PAGE_BYTES ||
	    arg->length / ACTMEM_PAGE_BYTES > ACTMEM_MAX_PAGES ||
	    !actmem_name_is_valid(arg->name, strnlen(arg->name, ACTMEM_NAME_BYTES)))
		return ERR_PTR(-EINVAL);
	return actmem_region_create(arg, mount);
}

/*
 * Creates a region for a file of a mount. The region has no name until
 * actmem_create_attach_named() attaches it to the file.
 */
struct actmem_region *actmem_create_for_file(struct inode *inode, struct actmem_ioctl_create *arg)
{
	struct actmem_mount *mount = actmem_super_mount(inode->i_sb);
	int node;

	if (arg->policy == ACTMEM_POLICY_PREFERRED &&
	    !memchr_inv(arg->nodes, 0, sizeof(arg->nodes))) {
		arg->policy = mount->policy;
		for_each_node_mask(node, mount->nodes)
			arg->nodes[node / 64] |= 1ULL << (node % 64);
	}
	return actmem_create_region(arg, mount);
}

/*
 * Attaches a region to an inode. The inode takes over the caller's reference to the region. The
 * region is freed when the inode is evicted.
 */
void actmem_create_attach(struct inode *inode, struct actmem_region *region)
{
	spin_lock(&region->lock);
	region->inode = inode;
	inode_set_bytes(inode, region->pages_held * ACTMEM_PAGE_BYTES);
	spin_unlock(&region->lock);
	i_size_write(inode, region->page_count * ACTMEM_PAGE_BYTES);
	/* Pairs with actmem_file_region(). */
	smp_store_release(&inode->i_private, region);
}

/*
 * Attaches a region to an empty file of a mount, and gives the region the file's name. The caller
 * has locked the inode, so that the name does not change. If the file has no name yet, the region
 * gets a name when the file is linked. Returns EEXIST if the file already has a region; the caller
 * then keeps its reference to @region.
 */
int actmem_create_attach_named(struct inode *inode, struct actmem_region *region)
{
	struct dentry *dentry;

	lockdep_assert_held_write(&inode->i_rwsem);
	if (inode->i_private)
		return -EEXIST;
	/*
	 * Do not use the dentry of the open file: if the file was created with O_TMPFILE, that
	 * dentry does not have the file's name.
	 */
	dentry = inode->i_nlink ? d_find_alias(inode) : NULL;
	if (dentry)
		actmem_region_set_name(region, dentry);
	dput(dentry);
	actmem_create_attach(inode, region);
	return 0;
}

/*
 * Creates a region of this length for an empty file of a mount, with the mount's policy. The caller
 * has locked the inode. Returns EPERM if the file already has a region, because other processes may
 * have mapped that region.
 */
int actmem_create_of_length(struct inode *inode, loff_t length)
{
	struct actmem_ioctl_create arg = {
		.length = length,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.policy = ACTMEM_POLICY_PREFERRED,
	};
	struct actmem_region *region;

	if (inode->i_private)
		return -EPERM;
	region = actmem_create_for_file(inode, &arg);
	return IS_ERR(region) ? PTR_ERR(region) : actmem_create_attach_named(inode, region);
}
