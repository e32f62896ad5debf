/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Shows on one line of standard error how far long work has come. */
#ifndef ACTMEM_PROGRESS_H
#define ACTMEM_PROGRESS_H

/*
 * Tells what is done now: if standard error is a terminal, from the second second on,
 * and at most ten times in a second.
 */
void progress_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes the line away; before anything else is written. */
void progress_end(void);

#endif
