/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Replaces this process by another program. On failure, uses the exit statuses of shells. */
#ifndef ACTMEM_BECOME_H
#define ACTMEM_BECOME_H

/*
 * Executes @program, which is a path or a name to look for in PATH, with @argv, which includes
 * argv[0]. @hint follows the error message if PATH does not have the name; it may be NULL. Returns
 * STATUS_NOT_FOUND or STATUS_NOT_RUN after printing the error message.
 */
int become_program(const char *program, char **argv, const char *hint);

#endif
