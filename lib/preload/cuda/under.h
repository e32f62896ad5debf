/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * If a program maps memory itself, and registers it with CUDA before the first access, the preload
 * maps pages of a region at the same addresses. XLA maps and registers memory in this way on
 * machines with several nodes. Thread-safe, but not usable in a forked child.
 */
#ifndef LIB_PRELOAD_CUDA_UNDER_H
#define LIB_PRELOAD_CUDA_UNDER_H

#include "preload/cuda/pool.h"

/*
 * Registers a range. If the call returns OUTCOME_OURS, *@result is the driver's result. If *@result
 * is 0, the range is registered and contains pages of a region. If the call returns OUTCOME_DRIVERS
 * or OUTCOME_FAILED, the range is not registered, and its contents are unchanged.
 */
enum cuda_outcome cuda_under_register(const struct cuda_settings *settings, void *address,
				      size_t bytes, unsigned int flags, cuda_result *result,
				      struct cuda_failure *failure);

/*
 * Unregisters a range. Returns OUTCOME_DRIVERS if cuda_under_register() did not register the range.
 * Otherwise *@result is the driver's result, and the program keeps the pages with their contents
 * until it unmaps them.
 */
enum cuda_outcome cuda_under_unregister(void *address, cuda_result *result);

#endif /* LIB_PRELOAD_CUDA_UNDER_H */
