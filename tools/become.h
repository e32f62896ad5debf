/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Becomes another program, with the exit statuses of shells where that cannot be. */
#ifndef ACTMEM_BECOME_H
#define ACTMEM_BECOME_H

/*
 * @program: a path, or a name to look for in PATH; @argv is all that it is called with.
 * @hint: what to do if the name is not there, to go behind that in the message; or NULL.
 * Returns STATUS_NOT_FOUND or STATUS_NOT_RUN, and has told why.
 */
int become_program(const char *program, char **argv, const char *hint);

#endif
