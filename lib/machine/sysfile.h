/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads small files of /proc and /sys. The command `actmem` links sysfile.c, too. Functions that
 * can fail return 0, or -errno without an error message.
 */
#ifndef LIB_MACHINE_SYSFILE_H
#define LIB_MACHINE_SYSFILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads as much of the file as fits in @size, and terminates @text with NUL. */
int sysfile_read(const char *path, char *text, size_t size);

/* Reads a file that contains one number. "max" becomes UINT64_MAX. -EINVAL: no number. */
int sysfile_value(uint64_t *value, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Reads the word in brackets, as in "always [madvise] never". -EINVAL: there is none. */
int sysfile_choice(char *choice, size_t size, const char *path);

/* Returns the number after the first @label in @text; 0 if @text lacks the label. */
uint64_t sysfile_number(const char *text, const char *label);

#endif /* LIB_MACHINE_SYSFILE_H */
