// SPDX-License-Identifier: GPL-2.0
/* Is inode_operations.create told whether the file must be a new one? */
#include <linux/fs.h>

int probe(const struct inode_operations *operations);
int probe(const struct inode_operations *operations)
{
#if PROBE
	return operations->create(NULL, NULL, NULL, 0, true);
#else
	return operations->create(NULL, NULL, NULL, 0);
#endif
}
