// SPDX-License-Identifier: GPL-2.0
/* Does inode_operations.setattr take an idmap first, or a namespace? */
#include <linux/fs.h>

#if PROBE
static int setattr(struct mnt_idmap *context, struct dentry *dentry, struct iattr *attributes)
#else
static int setattr(struct user_namespace *context, struct dentry *dentry, struct iattr *attributes)
#endif
{
	return 0;
}

extern const struct inode_operations probe;
const struct inode_operations probe = {
	.setattr = setattr,
};
