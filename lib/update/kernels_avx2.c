/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The operations for AVX2; see kernels.h.
 */
#if defined(__x86_64__)
#pragma GCC target("avx2")
#define KERNELS		kernels_avx2
#define KERNELS_NAME	"avx2"
#include "update/kernel_set.h"
#endif
