// SPDX-License-Identifier: GPL-2.0
/*
 * The requests of request.c as commands of io_uring.
 *
 * All of them may take long, so that none is carried out where it is issued:
 * it is checked there, and what is good goes by EAGAIN to a worker of io_uring,
 * as fallocate(2) and fsync(2) do. That is a thread of the task which issued it:
 * its memory, cgroups, cpuset, credentials and signals are that task's. It reads
 * and checks the argument anew, since that lies in user memory.
 *
 * The command is over when the function returns. So, as with an ioctl, the
 * request's reference to the file keeps region and module for as long as any
 * code of theirs runs, and there is nothing to tell io_uring but the result.
 *
 * To cancel a command, be it for IORING_OP_ASYNC_CANCEL, for a ring that is
 * closed or for a task that exits, io_uring notifies its worker, which
 * actmem_caller_stopped() sees.
 */
#include "actmem.h"
#include "compat/uring.h"
#include "trace.h"

/*
 * The argument's address is in the driver's part of the command. A flag of ours
 * among sqe->uring_cmd_flags: the kernel lets user space set only the lowest of
 * them, and keeps its own in the upper eight.
 */
#define ADDRESS_IS_KEPT	BIT(23)
#define USER_FLAGS	GENMASK(22, 0)

/*
 * The submission is read once: Linux 6.12 has the worker look for it in the queue
 * again, where user space may have put another by then.
 */
static int keep_address(struct io_uring_cmd *command, u64 *address)
{
	const struct actmem_uring *payload = actmem_uring_payload(command);

	if (command->flags & USER_FLAGS || READ_ONCE(payload->reserved))
		return -EINVAL;
	*address = READ_ONCE(payload->argument);
	command->flags |= ADDRESS_IS_KEPT;
	return 0;
}

int actmem_uring_cmd(struct io_uring_cmd *command, unsigned int issue_flags)
{
	u64 *address = (u64 *)command->pdu;
	struct actmem_caller *who = NULL;
	struct actmem_caller caller;
	int err;

	if (!(command->flags & ADDRESS_IS_KEPT)) {
		err = keep_address(command, address);
		if (err)
			return err;
	}
	if (!(issue_flags & IO_URING_F_NONBLOCK)) {
		actmem_caller_init(&caller);
		caller.req = command;
		who = &caller;
	}
	err = actmem_request(command->file, command->cmd_op, u64_to_user_ptr(*address), who);
	if (err == -ENOTTY)
		return -EOPNOTSUPP;
	if (err || who)
		return err;
	trace_actmem_command_issue(actmem_file_region(command->file), command->cmd_op, command);
	return -EAGAIN;
}
