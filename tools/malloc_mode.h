/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Sets the environment up for the malloc mode of libactmem_preload.so. */
#ifndef ACTMEM_MALLOC_MODE_H
#define ACTMEM_MALLOC_MODE_H

#include <stdbool.h>

/* Whether the environment asks for the malloc mode. */
bool malloc_mode_is_wanted(void);

/* Whether it does, and says nothing of regions. */
bool malloc_mode_is_all(void);

/*
 * If the environment asks for the malloc mode, tells on stderr what it cannot have: a
 * value that is wrong, memory on the nodes, huge pages. @verbose tells as well what it
 * has. Returns an enum exit_status, STATUS_USAGE for a value.
 */
int malloc_mode_set(bool verbose);

#endif
