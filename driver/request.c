// SPDX-License-Identifier: GPL-2.0
/*
 * What changes the pages of a region: POPULATE, DISCARD and COPY. They come
 * as ioctls of the region's descriptor and as commands of io_uring, and are
 * checked and carried out in the same way.
 */
#include <linux/file.h>

#include "actmem.h"
#include "trace.h"

static bool range_fits(const struct actmem_region *region, u64 offset, u64 length)
{
	u64 bytes = region->page_count * ACTMEM_PAGE_BYTES;

	return length <= bytes && offset <= bytes - length;
}

/* Of whole pages, and not empty. */
bool actmem_is_range(const struct actmem_region *region, u64 offset, u64 length)
{
	return length && IS_ALIGNED(offset | length, ACTMEM_PAGE_BYTES) &&
	       range_fits(region, offset, length);
}

static int check_range(const struct file *file, const struct actmem_ioctl_range *arg)
{
	if (!actmem_file_region(file))
		return -ENODATA;
	if (arg->flags || !actmem_is_range(actmem_file_region(file), arg->offset, arg->length))
		return -EINVAL;
	return file->f_mode & FMODE_WRITE ? 0 : -EBADF;
}

static int discard(struct actmem_region *region, unsigned long first, unsigned long count,
		   const struct actmem_caller *caller, unsigned long *done)
{
	int err;

	*done = 0;
	err = actmem_begin_write(region);
	if (err)
		return err;
	err = actmem_discard(region, first, count, caller, done);
	actmem_end_write(region);
	return err;
}

static int change_range(struct file *file, unsigned int request, void __user *user,
			const struct actmem_caller *caller)
{
	struct actmem_region *region = actmem_file_region(file);
	unsigned long first, count, done;
	struct actmem_ioctl_range arg;
	struct actmem_command command;
	int err, unanswered;
	u64 began;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (!err)
		err = check_range(file, &arg);
	if (err || !caller)
		return err;

	command = (struct actmem_command){
		.region = region,
		.what = _IOC_NR(request),
		.offset = arg.offset,
		.length = arg.length,
		.req = caller->req,
	};
	trace_actmem_command_start(&command);
	began = actmem_latency_begin(trace_actmem_command_complete_enabled());
	actmem_no_reason(&arg.why);
	first = arg.offset / ACTMEM_PAGE_BYTES;
	count = arg.length / ACTMEM_PAGE_BYTES;
	done = 0;
	if (request == ACTMEM_IOC_POPULATE)
		err = actmem_populate(region, first, count, caller, &done, &arg.why);
	else if (region->import)	/* they are those of the file */
		err = -EOPNOTSUPP;
	else
		err = discard(region, first, count, caller, &done);
	arg.done = done * ACTMEM_PAGE_BYTES;
	trace_actmem_command_complete(&command, arg.done, err, actmem_latency_end(began));
	unanswered = actmem_answer(user, &arg, sizeof(arg));
	return err ?: unanswered;
}

static int check_copy(const struct file *file, const struct file *source,
		      const struct actmem_ioctl_copy *arg)
{
	const struct actmem_region *region = actmem_file_region(file);
	u64 distance;

	if (!actmem_is_region(source))
		return -EINVAL;
	if (!region || !actmem_file_region(source))
		return -ENODATA;
	if (!(source->f_mode & FMODE_READ))
		return -EBADF;
	if (!range_fits(region, arg->offset, arg->length) ||
	    !range_fits(actmem_file_region(source), arg->source_offset, arg->length))
		return -EINVAL;
	distance = arg->offset > arg->source_offset ? arg->offset - arg->source_offset :
						      arg->source_offset - arg->offset;
	if (actmem_file_region(source) == region && distance < arg->length)
		return -EINVAL;
	return file->f_mode & FMODE_WRITE ? 0 : -EBADF;
}

static int copy_range(struct actmem_region *to, struct actmem_region *from,
		      struct actmem_ioctl_copy *arg, const struct actmem_caller *caller)
{
	struct actmem_command command = {
		.region = to,
		.what = ACTMEM_COMMAND_COPY,
		.offset = arg->offset,
		.length = arg->length,
		.source = from,
		.source_offset = arg->source_offset,
		.req = caller->req,
	};
	u64 began;
	int err;

	trace_actmem_command_start(&command);
	began = actmem_latency_begin(trace_actmem_command_complete_enabled());
	actmem_no_reason(&arg->why);
	arg->done = 0;
	err = actmem_begin_write(to);
	if (!err) {
		err = actmem_copy(to, arg->offset, from, arg->source_offset, arg->length, caller,
				  &arg->done, &arg->why);
		actmem_end_write(to);
	}
	trace_actmem_command_complete(&command, arg->done, err, actmem_latency_end(began));
	return err;
}

static int copy(struct file *file, void __user *user, const struct actmem_caller *caller)
{
	struct actmem_ioctl_copy arg;
	int err, unanswered = 0;
	struct file *source;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	if (arg.flags || arg.reserved || !arg.length)
		return -EINVAL;
	/* Keeps the region, whatever becomes of the descriptor. */
	source = fget(arg.source_fd);
	if (!source)
		return -EBADF;
	err = check_copy(file, source, &arg);
	if (!err && caller) {
		err = copy_range(actmem_file_region(file), actmem_file_region(source), &arg,
				 caller);
		unanswered = actmem_answer(user, &arg, sizeof(arg));
	}
	fput(source);
	return err ?: unanswered;
}

/* Carries out what the struct at @user asks for; without a @caller only checks it. */
int actmem_request(struct file *file, unsigned int request, void __user *user,
		   const struct actmem_caller *caller)
{
	/* What the hardware has reported by now is not to be used any more. */
	if (caller)
		actmem_poison_settle();
	switch (request) {
	case ACTMEM_IOC_POPULATE:
	case ACTMEM_IOC_DISCARD:
		return change_range(file, request, user, caller);
	case ACTMEM_IOC_COPY:
		return copy(file, user, caller);
	default:
		return -ENOTTY;
	}
}
