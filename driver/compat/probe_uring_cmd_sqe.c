// SPDX-License-Identifier: GPL-2.0
/*
 * Does a command of io_uring point to its submission, or to the driver's bytes
 * of it? Where it does the former, it has a header of its own; kernels for which
 * just one of the two is so are refused.
 */
#include <linux/fs.h>
#if PROBE
#include <linux/io_uring/cmd.h>
#else
#include <linux/io_uring.h>
#endif

const void *probe(struct io_uring_cmd *command);
const void *probe(struct io_uring_cmd *command)
{
#if PROBE
	return command->sqe->cmd;
#else
	return command->cmd;
#endif
}
