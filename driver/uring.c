// SPDX-License-Identifier: GPL-2.0
/*
 * POPULATE and DISCARD as commands of io_uring.
 *
 * Both may take long, so that neither is carried out where it is issued: it goes by
 * EAGAIN to a worker of io_uring, as fallocate(2) and fsync(2) do. That is a thread of
 * the task which issued it: its memory, cgroups, cpuset, credentials and signals are
 * that task's.
 *
 * The command is over when the function returns. So, as with an ioctl, the
 * request's reference to the file keeps region and module for as long as any
 * code of theirs runs, and there is nothing to tell io_uring but the result.
 *
 * To cancel a command, be it for IORING_OP_ASYNC_CANCEL, for a ring that is
 * closed or for a task that exits, io_uring notifies its worker, which
 * actmem_stopped() sees.
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
