/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory that a program maps itself, and registers before it touches it, gets the pages of a
 * region. XLA has such memory on machines with several nodes. Thread-safe, but not usable in a
 * forked child.
 */
#ifndef LIB_PRELOAD_CUDA_UNDER_H
#define LIB_PRELOAD_CUDA_UNDER_H

#include "preload/cuda/pool.h"

/*
 * OURS: *@result is the driver's. If it is 0, the range is registered, with pages of a region in
 * it. DRIVERS, FAILED: the range is unchanged.
 */
enum cuda_outcome cuda_under_register(const struct cuda_settings *settings, void *address,
				      size_t bytes, unsigned int flags, cuda_result *result,
				      struct cuda_failure *failure);

/*
 * DRIVERS: there is no such range. Otherwise *@result is the driver's. The pages then belong to the
 * program, with their contents, until it unmaps them.
 */
enum cuda_outcome cuda_under_unregister(void *address, cuda_result *result);

#endif /* LIB_PRELOAD_CUDA_UNDER_H */
