// SPDX-License-Identifier: GPL-2.0
/*
 * Copies the arguments of ioctls from and to user space, and parses the numbers in mount options
 * and sysfs files.
 */
#include <linux/ctype.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/overflow.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "actmem.h"

/*
 * Copies a struct from user space. Every struct begins with a __u32, which contains the struct's
 * size in user space. This size must be at least @oldest, the struct's size in the oldest version
 * of the interface.
 */
int actmem_argument_fetch(void *arg, size_t size, size_t oldest, void __user *user)
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
	/* Another thread may have changed the size after get_user(). */
	*(u32 *)arg = user_size;
	return 0;
}

/* Copies to user space the part of the struct that user space knows. */
int actmem_argument_answer(void __user *user, const void *arg, size_t size)
{
	size = min_t(size_t, size, *(u32 *)arg);
	return copy_to_user(user, arg, size) ? -EFAULT : 0;
}

/*
 * Calls @make to make a file, and copies the struct @arg with the file's descriptor to user space.
 * @fd is the field of @arg for the descriptor. @make can change other fields of @arg. After an
 * error, *@fd is -1, no file or descriptor is left, and the struct may or may not have been copied.
 */
int actmem_argument_answer_with_file(void __user *user, void *arg, size_t size, s32 *fd,
				     struct file *(*make)(void *context), void *context)
{
	int number = get_unused_fd_flags(O_CLOEXEC), err;
	struct file *file;

	*fd = -1;
	if (number < 0)
		return number;
	file = make(context);
	err = PTR_ERR_OR_ZERO(file);
	if (err)
		goto put_number;
	*fd = number;
	err = actmem_argument_answer(user, arg, size);
	if (!err) {
		fd_install(number, file);
		return 0;
	}
	fput(file);
	*fd = -1;
put_number:
	put_unused_fd(number);
	return err;
}

/*
 * Parses a decimal number with an optional suffix K, M, G, T, P or E, and returns the text after
 * the suffix. Returns NULL if there is no number, or if the number does not fit in 64 bits. Unlike
 * this function, memparse() returns a wrong number if the number does not fit.
 */
const char *actmem_argument_number(const char *text, u64 *number)
{
	static const char suffixes[] = "KMGTPE";
	const char *suffix;
	u64 unit = 1;

	if (!isdigit(*text))
		return NULL;
	for (*number = 0; isdigit(*text); text++) {
		u64 digit = *text - '0';

		if (check_mul_overflow(*number, 10ULL, number) ||
		    check_add_overflow(*number, digit, number))
			return NULL;
	}
	suffix = *text ? strchr(suffixes, toupper(*text)) : NULL;
	if (suffix) {
		unit <<= 10 * (suffix - suffixes + 1);
		text++;
	}
	return check_mul_overflow(*number, unit, number) ? NULL : text;
}
