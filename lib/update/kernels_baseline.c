/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The operations for every processor of this architecture (on x86-64: SSE2); see kernels.h.
 */
#define KERNELS		kernels_baseline
#define KERNELS_NAME	"baseline"
#include "update/kernel_set.h"
