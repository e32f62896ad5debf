/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Shows the progress of long work on one line of standard error. */
#ifndef ACTMEM_PROGRESS_H
#define ACTMEM_PROGRESS_H

/*
 * Shows the current work if standard error is a terminal. Prints nothing in the first second, and
 * then at most ten times per second.
 */
void progress_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Clears the line. Call it before writing anything else. */
void progress_end(void);

#endif
