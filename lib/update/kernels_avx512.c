/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The operations for AVX-512; see kernels.h.
 */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#define KERNELS		kernels_avx512
#define KERNELS_NAME	"avx512"
#include "update/kernel_set.h"
#endif
