// SPDX-License-Identifier: GPL-2.0
/*
 * The request for a dma-buf: what is asked for, and who may have it.
 */
#include <linux/dma-buf.h>

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

struct export_request {
	struct file *file;
	struct actmem_ioctl_export *arg;
};

static struct file *make_dmabuf(void *context)
{
	const struct export_request *request = context;
	struct actmem_ioctl_export *arg = request->arg;
	struct actmem_caller caller;
	struct dma_buf *dmabuf;

	actmem_caller_init(&caller);
	dmabuf = actmem_dmabuf_create(request->file, arg->offset / ACTMEM_PAGE_BYTES,
				      arg->length / ACTMEM_PAGE_BYTES,
				      !(arg->flags & ACTMEM_EXPORT_READ_ONLY), &caller, &arg->why);
	return IS_ERR(dmabuf) ? ERR_CAST(dmabuf) : dmabuf->file;
}

int actmem_export(struct file *file, void __user *user)
{
	struct actmem_ioctl_export arg;
	struct export_request request = { .file = file, .arg = &arg };
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	arg.fd = -1;
	actmem_no_reason(&arg.why);
	err = check_export(file, &arg);
	if (err)
		return err;
	err = actmem_answer_with_file(user, &arg, sizeof(arg), &arg.fd, make_dmabuf, &request);
	/* The first error is the one that matters. */
	if (err)
		(void)actmem_answer(user, &arg, sizeof(arg));
	return err;
}
