/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The exported mmap and what belongs to it. */
#ifndef LIB_PRELOAD_CUDA_MAPPING_H
#define LIB_PRELOAD_CUDA_MAPPING_H

/* Finds those that the program would have without the preload, while there is one thread. */
void mapping_begin(void);

#endif /* LIB_PRELOAD_CUDA_MAPPING_H */
