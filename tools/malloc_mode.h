/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Sets the environment up for the malloc mode of libactmem_preload.so. */
#ifndef ACTMEM_MALLOC_MODE_H
#define ACTMEM_MALLOC_MODE_H

#include <stdbool.h>

/* Returns true if the environment asks for the malloc mode. */
bool malloc_mode_is_wanted(void);

/* Returns true if the environment asks for the malloc mode, and for nothing about regions. */
bool malloc_mode_is_all(void);

/*
 * Sets up the malloc mode if the environment asks for it. Prints invalid values and missing memory
 * on the nodes or huge pages on stderr. If @verbose, also prints the settings in effect. Returns an
 * enum exit_status, STATUS_USAGE for an invalid value.
 */
int malloc_mode_set(bool verbose);

#endif
