// SPDX-License-Identifier: GPL-2.0
/*
 * The structs of requests, from user space and back.
 */
#include <linux/uaccess.h>

#include "actmem.h"

/*
 * Every struct begins with a __u32, its size in user space, which is no less
 * than @oldest, its size when it was first defined.
 */
int actmem_fetch(void *arg, size_t size, size_t oldest, void __user *user)
{
	u32 user_size;
	int err;

	if (get_user(user_size, (u32 __user *)user))
		return -EFAULT;
	if (user_size < oldest)
		return -EINVAL;
	if (user_size > PAGE_SIZE)
		return -E2BIG;
	err = copy_struct_from_user(arg, size, user, user_size);
	if (err)
		return err;
	/* Another thread may have changed it since it was read. */
	*(u32 *)arg = user_size;
	return 0;
}

/* As much of the struct as user space knows. */
int actmem_answer(void __user *user, const void *arg, size_t size)
{
	size = min_t(size_t, size, *(u32 *)arg);
	return copy_to_user(user, arg, size) ? -EFAULT : 0;
}
