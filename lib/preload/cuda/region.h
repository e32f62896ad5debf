/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions for ranges that a program registers with CUDA. If the environment sets a name, the
 * regions are named files. Thread-safe.
 */
#ifndef LIB_PRELOAD_CUDA_REGION_H
#define LIB_PRELOAD_CUDA_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/cuda/library.h"
#include "preload/settings.h"
#include "preload/cuda/untouched.h"

struct cuda_name;

struct cuda_region {
	struct actmem_region *region;
	struct cuda_name *name;		/* NULL: the region has no name */
};

/*
 * Opens a handle of libactmem, unless an earlier call did. Must be called before the other
 * functions. Stores the page size in *@unit: the address and length of a mapped region must be
 * multiples of this size.
 */
bool cuda_region_prepare(const struct cuda_settings *settings, uint64_t *unit,
			 struct cuda_failure *failure);

/*
 * Opens a region. Its pages are on the nodes of @policy, unless the environment selects nodes or a
 * policy.
 */
bool cuda_region_open(struct cuda_region *region, uint64_t length,
		      const struct cuda_policy *policy, struct cuda_failure *failure);

/* Closes a region. Its mappings stay. */
void cuda_region_close(const struct cuda_region *region);

#endif /* LIB_PRELOAD_CUDA_REGION_H */
