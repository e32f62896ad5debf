/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Small files of /proc and /sys. Calls return 0 or a negative errno. */
#ifndef ACTMEM_PROCFILE_H
#define ACTMEM_PROCFILE_H

#include <stddef.h>
#include <stdint.h>

/* The text without its last newline; cut off after @size - 1 bytes. */
int procfile_text(char *text, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* One number; "max" is UINT64_MAX. -EINVAL: no number. */
int procfile_number(uint64_t *number, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The word in brackets: "always [madvise] never". -EINVAL: there is none. */
int procfile_choice(char *choice, size_t size, const char *path);

#endif
