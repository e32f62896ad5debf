/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Tests the settings in the environment before a program relies on them. */
#ifndef ACTMEM_TRIAL_H
#define ACTMEM_TRIAL_H

#include <stdbool.h>

struct trial {
	bool verbose;		/* print the backend and pages that it got */
	bool is_any;		/* the user chose no memory: print if it is not the best */
};

/*
 * Opens the backend. Creates a region and closes it or, with ACTMEM_NAME, creates or opens the
 * first region of that name. Creates a store with the budget and spill folders. This reports errors
 * on stderr that would otherwise stop the program much later: an invalid value, no device, no
 * permission, no free huge pages, or a limit.
 * Returns an enum exit_status, STATUS_USAGE for an invalid value.
 */
int try_environment(const struct trial *trial);

#endif
