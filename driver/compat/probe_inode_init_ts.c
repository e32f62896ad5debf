// SPDX-License-Identifier: GPL-2.0
/* Does a function set the times of a new inode, or are they plain fields? */
#include <linux/fs.h>

void probe(struct inode *inode);
void probe(struct inode *inode)
{
#if PROBE
	simple_inode_init_ts(inode);
#else
	inode->i_ctime = current_time(inode);
	inode->i_atime = inode->i_ctime;
	inode->i_mtime = inode->i_ctime;
#endif
}
