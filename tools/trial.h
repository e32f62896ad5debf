/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Tries what the environment says before a program relies on it. */
#ifndef ACTMEM_TRIAL_H
#define ACTMEM_TRIAL_H

#include <stdbool.h>

struct trial {
	bool verbose;		/* tells which backend and pages it got */
	bool is_any;		/* nobody asked for these: tells in a line if they are not the best */
};

/*
 * Opens the backend, makes one region and gives it back, or makes or finds the first one
 * of ACTMEM_NAME, and opens a store with the budget and spill folders. It tells now, on
 * stderr, of all that would stop the program much later: a value that is wrong, no device,
 * no permission, no free huge pages, a limit.
 * Returns an enum exit_status, STATUS_USAGE for a value.
 */
int try_environment(const struct trial *trial);

#endif
