/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Tries what the environment says before a program relies on it. */
#ifndef ACTMEM_TRIAL_H
#define ACTMEM_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct actmem;

/*
 * Opens the backend, and makes one region and gives it back, or makes or finds the
 * first one of ACTMEM_NAME. What the program
 * would fail at much later is told now, on stderr: a value that is wrong, no
 * device, no permission, no free huge pages, a limit. @verbose tells as well
 * which backend and pages it got. Returns an enum exit_status, STATUS_USAGE
 * for a value.
 */
int try_environment(bool verbose);

/* The bytes that the variable says, 0 if it says none; false: told what is wrong with it. */
bool take_size(enum knob knob, uint64_t *bytes);

/* Tells that the environment has a value for this knob that it cannot have. */
void tell_wrong_value(enum knob knob, const char *choice);

/* Whether ACTMEM_BUDGET, ACTMEM_SPILL and so on can be meant; else told what is wrong. */
bool check_store(void);

/*
 * Makes the store that ACTMEM_BUDGET, ACTMEM_SPILL, _SPILL_LIMIT and _SPILL_ALLOW say, or a
 * limit, with files in its directories, and ends it.
 */
int try_store(struct actmem *am, uint64_t grow_bytes, uint64_t limit_bytes, bool verbose);

#endif
