// SPDX-License-Identifier: GPL-2.0
/* Does inode_operations.mkdir return a dentry, or a number? */
#include <linux/fs.h>

typedef typeof(((struct inode_operations *)NULL)->mkdir(NULL, NULL, NULL, 0)) result_t;

/* One of the two arrays has a length that there is not. */
#if PROBE
extern char probe[__same_type(result_t, struct dentry *) ? 1 : -1];
#else
extern char probe[__same_type(result_t, int) ? 1 : -1];
#endif
