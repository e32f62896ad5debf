// SPDX-License-Identifier: GPL-2.0
/*
 * The request for a dma-buf: what is asked for, who may have it, and its
 * descriptor.
 */
#include <linux/dma-buf.h>
#include <linux/file.h>

#include "actmem.h"

static int check_export(const struct file *file, const struct actmem_ioctl_export *arg)
{
	bool writable = !(arg->flags & ACTMEM_EXPORT_READ_ONLY);

	if (arg->flags & ~ACTMEM_EXPORT_READ_ONLY || arg->reserved)
		return -EINVAL;
	if (!actmem_file_region(file))
		return -ENODATA;
	if (!actmem_is_range(actmem_file_region(file), arg->offset, arg->length))
		return -EINVAL;
	if (!(file->f_mode & FMODE_READ) || (writable && !(file->f_mode & FMODE_WRITE)))
		return -EBADF;
	return IS_ENABLED(CONFIG_DMA_SHARED_BUFFER) ? 0 : -EOPNOTSUPP;
}

static int make_descriptor(struct file *file, struct actmem_ioctl_export *arg,
			   void __user *user)
{
	struct actmem_caller caller;
	struct dma_buf *dmabuf;
	int fd, err;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	actmem_caller_init(&caller);
	dmabuf = actmem_dmabuf_create(file, arg->offset / ACTMEM_PAGE_BYTES,
				      arg->length / ACTMEM_PAGE_BYTES,
				      !(arg->flags & ACTMEM_EXPORT_READ_ONLY), &caller, &arg->why);
	err = PTR_ERR_OR_ZERO(dmabuf);
	if (err)
		goto put_fd;
	arg->fd = fd;
	err = actmem_answer(user, arg, sizeof(*arg));
	if (err)
		goto put_dmabuf;
	fd_install(fd, dmabuf->file);
	return 0;

put_dmabuf:
	fput(dmabuf->file);
put_fd:
	put_unused_fd(fd);
	arg->fd = -1;
	return err;
}

int actmem_export(struct file *file, void __user *user)
{
	struct actmem_ioctl_export arg;
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	arg.fd = -1;
	actmem_no_reason(&arg.why);
	err = check_export(file, &arg);
	if (err)
		return err;
	err = make_descriptor(file, &arg, user);
	/* The first error is the one that matters. */
	if (err)
		(void)actmem_answer(user, &arg, sizeof(arg));
	return err;
}
