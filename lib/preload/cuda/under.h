/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory that a program maps itself and registers before it touches it, as XLA does
 * where there are several nodes: it gets the pages of a region there. Thread-safe; of
 * no use in a forked child.
 */
#ifndef LIB_PRELOAD_CUDA_UNDER_H
#define LIB_PRELOAD_CUDA_UNDER_H

#include "preload/cuda/pool.h"

/*
 * OURS: the range is registered, with pages of a region in it. DRIVERS, FAILED: it
 * is as it was.
 */
enum cuda_outcome cuda_under_register(const struct cuda_settings *settings, void *address,
				      size_t bytes, unsigned int flags, cuda_result *result,
				      struct cuda_failure *failure);

/*
 * DRIVERS: it is no such range. Else it is as the driver says in *@result; the pages
 * are then the program's own, until it unmaps them, with what is in them.
 */
enum cuda_outcome cuda_under_unregister(void *address, cuda_result *result);

#endif /* LIB_PRELOAD_CUDA_UNDER_H */
