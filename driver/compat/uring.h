/* SPDX-License-Identifier: GPL-2.0 */
/* Where kernels differ in the commands of io_uring. */
#ifndef _ACTMEM_COMPAT_URING_H
#define _ACTMEM_COMPAT_URING_H

#include "compat/probed.h"

#if ACTMEM_HAVE_URING_CMD_SQE
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

#endif /* _ACTMEM_COMPAT_URING_H */
