// SPDX-License-Identifier: GPL-2.0
/* Are names that only memory knows marked as such, or held by a reference of nobody's? */
#include <linux/dcache.h>
#include <linux/fs.h>

void probe(struct dentry *dentry, struct inode *inode);
void probe(struct dentry *dentry, struct inode *inode)
{
#if PROBE
	d_make_persistent(dentry, inode);
#else
	d_instantiate(dget(dentry), inode);
	kill_litter_super(inode->i_sb);
#endif
}
