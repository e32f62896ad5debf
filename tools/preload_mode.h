/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Adds libactmem_preload.so to a program's LD_PRELOAD. */
#ifndef ACTMEM_PRELOAD_MODE_H
#define ACTMEM_PRELOAD_MODE_H

#include <stdbool.h>

/*
 * Puts the preload library of @library_folder first in LD_PRELOAD if one of its modes is wanted.
 * The CUDA mode is wanted unless ACTMEM_CUDA is 0, and this function then sets ACTMEM_CUDA to 1.
 * Returns an enum exit_status after printing any error message: STATUS_USAGE for an invalid value.
 */
int preload_mode_set(const char *library_folder, bool verbose);

/* Returns true if preload_mode_set() enabled the CUDA mode. */
bool preload_mode_has_cuda(void);

#endif
