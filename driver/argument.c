// SPDX-License-Identifier: GPL-2.0
/*
 * The structs of requests, from user space and back.
 */
#include <linux/fcntl.h>
#include <linux/file.h>
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

/**
 * actmem_answer_with_file() - answers with the descriptor of a new file
 * @user: what is answered to
 * @arg: the answer, which @make may add to
 * @size: of it, in bytes
 * @fd: where the descriptor is in @arg; -1 after an error
 * @make: makes the file
 * @context: for @make
 *
 * Returns 0, or an error that may have been answered or not; there is neither a file
 * nor a descriptor then.
 */
int actmem_answer_with_file(void __user *user, void *arg, size_t size, s32 *fd,
			    struct file *(*make)(void *context), void *context)
{
	int number = get_unused_fd_flags(O_CLOEXEC), err;
	struct file *file;

	*fd = -1;
	if (number < 0)
		return number;
	file = make(context);
	err = PTR_ERR_OR_ZERO(file);
	if (!err) {
		*fd = number;
		err = actmem_answer(user, arg, size);
		if (err)
			fput(file);
	}
	if (err) {
		*fd = -1;
		put_unused_fd(number);
		return err;
	}
	fd_install(number, file);
	return 0;
}
