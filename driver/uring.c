// SPDX-License-Identifier: GPL-2.0
/*
 * POPULATE and DISCARD as commands of io_uring.
 *
 * Both may take long, so the driver does not execute them in the submitting task. It
 * returns EAGAIN, and io_uring passes the command to a worker, as it does for
 * fallocate(2) and fsync(2). The worker is a thread of the task that issued the
 * command, and has its memory, cgroups, cpuset, credentials and signals.
 *
 * The command is complete when the function returns. As with an ioctl, the request's
 * reference to the file therefore keeps the region and the module until the driver's
 * code has returned. The driver reports only the result to io_uring.
 *
 * To cancel a command (IORING_OP_ASYNC_CANCEL, a ring that is closed, a task that
 * exits), io_uring notifies the worker, and actmem_stopped() returns EINTR there.
 */
#include "actmem.h"
#include "compat/uring.h"

int actmem_uring_cmd(struct io_uring_cmd *command, unsigned int issue_flags)
{
	u64 argument;
	int err;

	if (command->cmd_op != ACTMEM_IOC_POPULATE && command->cmd_op != ACTMEM_IOC_DISCARD)
		return -EOPNOTSUPP;
	err = actmem_uring_argument(command, &argument);
	if (err)
		return err;
	if (issue_flags & IO_URING_F_NONBLOCK)
		return -EAGAIN;
	return actmem_change_range(command->file, command->cmd_op, u64_to_user_ptr(argument));
}
