/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Small files of /proc and /sys.
 */
#ifndef LIB_SYSFILE_H
#define LIB_SYSFILE_H

#include <stddef.h>
#include <stdint.h>

/* As much of the file as fits, NUL-terminated. 0, or -errno without words. */
int sysfile_read(const char *path, char *text, size_t size);

/* The number behind the first @label in @text; 0 if it is not there. */
uint64_t sysfile_number(const char *text, const char *label);

/* The command of a process, of up to 15 letters; "" if it has ended. */
void process_command(int pid, char command[16]);

#endif /* LIB_SYSFILE_H */
