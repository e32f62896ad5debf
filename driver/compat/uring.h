/* SPDX-License-Identifier: GPL-2.0 */
/* Where kernels differ in the commands of io_uring. */
#ifndef _ACTMEM_COMPAT_URING_H
#define _ACTMEM_COMPAT_URING_H

#include "compat/probed.h"

#if ACTMEM_HAVE_URING_CMD_HEADER
#include <linux/io_uring/cmd.h>
#else
#include <linux/io_uring.h>
#endif

/* The bytes of a command that are the driver's. */
static inline const void *actmem_uring_payload(const struct io_uring_cmd *command)
{
#if ACTMEM_HAVE_URING_CMD_SQE
	return command->sqe->cmd;
#else
	return command->cmd;
#endif
}

/*
 * The address of the argument. Linux before 6.17 may have the worker look for the
 * submission in the queue again, where user space has put another by then: so it is
 * read when the command is issued, and kept in the driver's part of the command. A flag
 * tells so, which the kernel clears when it prepares a command, lets nobody set from
 * user space, and has no use for.
 */
static inline int actmem_uring_argument(struct io_uring_cmd *command, u64 *argument)
{
	const struct actmem_uring *payload = actmem_uring_payload(command);

#ifndef IORING_URING_CMD_REISSUE
	if (command->flags & BIT(23)) {
		*argument = *(u64 *)command->pdu;
		return 0;
	}
#endif
	/* Those that user space can set, such as MULTISHOT, whose requests end otherwise. */
	if (command->flags & GENMASK(22, 0) || READ_ONCE(payload->reserved))
		return -EINVAL;
	*argument = READ_ONCE(payload->argument);
#ifndef IORING_URING_CMD_REISSUE
	*(u64 *)command->pdu = *argument;
	command->flags |= BIT(23);
#endif
	return 0;
}

#endif /* _ACTMEM_COMPAT_URING_H */
