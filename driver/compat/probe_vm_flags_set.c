// SPDX-License-Identifier: GPL-2.0
/* Are vm_flags changed by a function, or directly? */
#include <linux/mm.h>

void probe(struct vm_area_struct *vma);
void probe(struct vm_area_struct *vma)
{
#if PROBE
	vm_flags_set(vma, VM_DONTCOPY);
#else
	vma->vm_flags |= VM_DONTCOPY;
#endif
}
