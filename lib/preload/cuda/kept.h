/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Keeps a copy of the variables ACTMEM_*, because CUDA mode also serves programs that clear their
 * environment.
 */
#ifndef LIB_PRELOAD_CUDA_KEPT_H
#define LIB_PRELOAD_CUDA_KEPT_H

#include <stdbool.h>

/*
 * Copies the variables ACTMEM_* of @environment, without malloc(). Must be called while there is
 * only one thread. Returns false if there is no memory.
 */
bool cuda_keep_variables(char *const *environment);

/*
 * Returns the environment, or the kept copy if the environment has no ACTMEM_CUDA any more. Like
 * getenv(), this function must not be called while another thread changes the environment.
 */
const char *const *cuda_variables(void);

#endif /* LIB_PRELOAD_CUDA_KEPT_H */
