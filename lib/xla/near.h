/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory near the GPU that a process uses, or the first one of several. All of them
 * have it registered.
 */
#ifndef ACTMEM_XLA_NEAR_H
#define ACTMEM_XLA_NEAR_H

#include <stdint.h>

#include "actmem_runtime.h"
#include "xla/knobs.h"

/* CUDA, for regions of @am; @device as CUDA counts them. As actmem_runtime_open(). */
int open_near(struct actmem *am, uint32_t device, struct actmem_runtime **runtime);

/* Prefers the device's node, if it is known and neither program nor user said where. */
int place_near(struct actmem_runtime *runtime, const struct knobs *knobs,
	       struct actmem_region_options *region);

#endif /* ACTMEM_XLA_NEAR_H */
