/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The environment of the CUDA mode, for programs that clear theirs.
 */
#ifndef LIB_PRELOAD_CUDA_KEPT_H
#define LIB_PRELOAD_CUDA_KEPT_H

#include <stdbool.h>

/* Copies the variables ACTMEM_*, without malloc, while there is one thread. False: no memory. */
bool cuda_keep_variables(char *const *environment);

/*
 * The environment, or what was kept of it if it has no ACTMEM_CUDA any more. As getenv(),
 * not while another thread changes it.
 */
const char *const *cuda_variables(void);

#endif /* LIB_PRELOAD_CUDA_KEPT_H */
