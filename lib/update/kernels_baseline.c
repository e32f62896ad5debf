/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The operations for each processor of this kind, such as SSE2 on x86-64; see kernels.h.
 */
#define KERNELS		kernels_baseline
#define KERNELS_NAME	"baseline"
#include "update/kernel_set.h"
