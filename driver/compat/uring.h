/* SPDX-License-Identifier: GPL-2.0 */
/* Differences between kernels in the commands of io_uring. */
#ifndef _ACTMEM_COMPAT_URING_H
#define _ACTMEM_COMPAT_URING_H

#include "compat/probed.h"

#if ACTMEM_HAVE_URING_CMD_HEADER
#include <linux/io_uring/cmd.h>
#else
#include <linux/io_uring.h>
#endif

/* Returns the driver's bytes of a command. */
static inline const void *actmem_uring_payload(const struct io_uring_cmd *command)
{
#if ACTMEM_HAVE_URING_CMD_SQE
	return command->sqe->cmd;
#else
	return command->cmd;
#endif
}

/*
 * Stores the address of the argument in @argument. Before Linux 6.17, the worker may
 * read the submission queue entry again after user space has overwritten it. The driver
 * therefore reads the address when the command is issued, and keeps it in its part of
 * the command (pdu). Bit 23 of the flags says that it is there. The kernel clears this
 * bit when it prepares a command, does not let user space set it, and does not use it.
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
	/*
	 * Refuse all flags of user space: with some, such as MULTISHOT, requests
	 * complete differently.
	 */
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
