/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The kernel's log, in which NVIDIA's driver names memory that it could not pin.
 */
#ifndef LIB_MACHINE_KERNEL_LOG_H
#define LIB_MACHINE_KERNEL_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define KERNEL_LOG		"/dev/kmsg"
#define KERNEL_LOG_LINE_MAX	256

/* Opens the log behind its last line. Returns -errno if this process may not read it. */
int kernel_log_open(const char *path);

/*
 * Reads the lines since then. Returns true if one says that the range, or memory that begins
 * in it, cannot be mapped, with that line.
 */
bool kernel_log_find_refusal(int log, const void *address, uint64_t length,
			     char line[KERNEL_LOG_LINE_MAX]);

#endif /* LIB_MACHINE_KERNEL_LOG_H */
