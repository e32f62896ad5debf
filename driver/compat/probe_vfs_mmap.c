// SPDX-License-Identifier: GPL-2.0
/* Is there vfs_mmap(), which also maps files that only prepare mappings? */
#include <linux/fs.h>

#if !PROBE
static int vfs_mmap(struct file *file, struct vm_area_struct *vma)
{
	return call_mmap(file, vma);
}
#endif

int probe(struct file *file, struct vm_area_struct *vma);
int probe(struct file *file, struct vm_area_struct *vma)
{
	return vfs_mmap(file, vma);
}
