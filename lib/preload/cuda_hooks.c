/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which of a program's lookups find our functions in place of CUDA's.
 */
#include "cuda.h"

struct cuda_host_calls cuda_driver;
__thread unsigned int cuda_inside;
