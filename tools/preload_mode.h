/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Puts libactmem_preload.so in front of a program. */
#ifndef ACTMEM_PRELOAD_MODE_H
#define ACTMEM_PRELOAD_MODE_H

#include <stdbool.h>

/*
 * Has the preload of that folder in front of LD_PRELOAD, where one of its modes is
 * wanted: that of CUDA is unless ACTMEM_CUDA is 0, and is set to 1. Returns an enum
 * exit_status, STATUS_USAGE for a value that is wrong; told on stderr.
 */
int preload_mode_set(const char *library_folder, bool verbose);

/* Whether it did so for CUDA's mode. */
bool preload_mode_has_cuda(void);

#endif
