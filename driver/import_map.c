// SPDX-License-Identifier: GPL-2.0
/*
 * Mapping an imported region: its file system maps its own pages, as only it
 * can map those of 1 GiB. Such a mapping has that file and not the region's, so
 * that the region's is held for as long as there are any.
 */
#include <linux/file.h>
#include <linux/mm.h>

#include "actmem.h"
#include "compat/compat.h"
#include "import.h"

static struct actmem_import *import_of(const struct vm_area_struct *vma)
{
	return container_of(vma->vm_ops, struct actmem_import, vm_ops);
}

/* A mapping is split, moved or inherited. */
static void open_mapping(struct vm_area_struct *vma)
{
	struct actmem_import *import = import_of(vma);

	spin_lock(&import->map_lock);
	import->mappings++;
	spin_unlock(&import->map_lock);
	if (import->file_ops->open)
		import->file_ops->open(vma);
}

static void close_mapping(struct vm_area_struct *vma)
{
	struct actmem_import *import = import_of(vma);
	struct file *holder = NULL;

	if (import->file_ops->close)
		import->file_ops->close(vma);
	spin_lock(&import->map_lock);
	if (!--import->mappings)
		holder = import->holder;
	spin_unlock(&import->map_lock);
	/* May be the end of the region. */
	if (holder)
		fput(holder);
}

/* They are the same for all mappings of the file. */
static void set_operations(struct actmem_import *import, const struct vm_operations_struct *ops)
{
	lockdep_assert_held(&import->map_lock);
	if (import->file_ops)
		return;
	import->file_ops = ops;
	/* Constant from here on, that is for all mappings. */
	memcpy((void *)&import->vm_ops, ops, sizeof(*ops));
	*(void (**)(struct vm_area_struct *))&import->vm_ops.open = open_mapping;
	*(void (**)(struct vm_area_struct *))&import->vm_ops.close = close_mapping;
}

/* The caller has the region's file, of which the mapping is until now. */
int actmem_import_mmap(struct actmem_region *region, struct vm_area_struct *vma)
{
	struct actmem_import *import = region->import;
	struct file *file = vma->vm_file;
	int err;

	vma->vm_pgoff += import->first;
	/* As the file system chooses addresses itself, it does not check them again. */
	if (!IS_ALIGNED(vma->vm_start | vma->vm_end | (u64)vma->vm_pgoff << PAGE_SHIFT,
			import->map_bytes))
		return -EINVAL;
	/* The kernel has asked the region's file for seals, which has none. */
	if (vma->vm_flags & VM_MAYWRITE && actmem_import_is_sealed(region))
		return -EPERM;
	vma_set_file(vma, import->file);
	err = actmem_mmap_file(import->file, vma);
	if (err)
		return err;
	spin_lock(&import->map_lock);
	set_operations(import, vma->vm_ops);
	vma->vm_ops = &import->vm_ops;
	if (!import->mappings++)
		import->holder = get_file(file);
	spin_unlock(&import->map_lock);
	return 0;
}

/* Where the file system would map its file. */
unsigned long actmem_import_get_unmapped_area(struct file *file, unsigned long address,
					      unsigned long length, unsigned long pgoff,
					      unsigned long flags)
{
	struct actmem_import *import = actmem_file_region(file)->import;

	return import->file->f_op->get_unmapped_area(import->file, address, length,
						     pgoff + import->first, flags);
}
