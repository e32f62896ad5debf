// SPDX-License-Identifier: GPL-2.0
/* Does inode_operations.mkdir return a dentry, or a number? */
#include <linux/fs.h>

#define RESULT	typeof(((const struct inode_operations *)NULL)->mkdir(NULL, NULL, NULL, 0))

/* One of the two is an array of a length that there is not. */
#if PROBE
extern char probe[__same_type(RESULT, struct dentry *) ? 1 : -1];
#else
extern char probe[__same_type(RESULT, int) ? 1 : -1];
#endif
