/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#ifndef PRELOAD_LINKED_PLUGIN_H
#define PRELOAD_LINKED_PLUGIN_H

#include <cuda.h>

#pragma GCC visibility push(default)

void *linked_default(const char *name);

/* The cuMemHostAlloc() that it calls. */
void *linked_function(void);

CUresult linked_flags(unsigned int *flags, void *memory);

#pragma GCC visibility pop

#endif /* PRELOAD_LINKED_PLUGIN_H */
