/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the kernel's log, in which NVIDIA's driver reports memory that it could not pin.
 */
#ifndef LIB_MACHINE_KERNEL_LOG_H
#define LIB_MACHINE_KERNEL_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define KERNEL_LOG		"/dev/kmsg"
#define KERNEL_LOG_LINE_MAX	256

/* Opens the log at its end. Returns the descriptor, or -errno, such as -EPERM. */
int kernel_log_open(const char *path);

/*
 * Reads the lines that were added since the last call, or since the log was opened. If one of them
 * says that memory in the range could not be mapped, copies the text of that line to @line and
 * returns true.
 */
bool kernel_log_find_refusal(int log, const void *address, uint64_t length,
			     char line[KERNEL_LOG_LINE_MAX]);

#endif /* LIB_MACHINE_KERNEL_LOG_H */
