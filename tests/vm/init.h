/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the parts of the machine's process 1 share.
 */
#ifndef INIT_H
#define INIT_H

/* Says a line to the host, see init.c. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes to the kernel's log. */
void log_kernel(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes to a file if there is one. */
void spill(const char *path, const char *text);

/* Leaks so far are not ours. */
void forget_leaks(void);

/* Reports and logs the objects that nothing points to any more. */
void report_leaks(void);

/* Reports and logs the huge pages that loaded modules hold. */
void report_module_pages(long kept);

#endif
