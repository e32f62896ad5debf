/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Small files of /proc and /sys. The command links this file too. Functions that
 * can fail return 0 or -errno without words.
 */
#ifndef LIB_MACHINE_SYSFILE_H
#define LIB_MACHINE_SYSFILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads as much of the file as fits, NUL-terminated. */
int sysfile_read(const char *path, char *text, size_t size);

/* A file that is one number; "max" is UINT64_MAX. -EINVAL: it is none. */
int sysfile_value(uint64_t *value, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The word in brackets: "always [madvise] never". -EINVAL: there is none. */
int sysfile_choice(char *choice, size_t size, const char *path);

/* The number behind the first @label in @text; 0 if it is not there. */
uint64_t sysfile_number(const char *text, const char *label);

#endif /* LIB_MACHINE_SYSFILE_H */
