/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Keys of blocks in stores. */
#ifndef LIB_XLA_KEY_H
#define LIB_XLA_KEY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The name of a block in its store consists of the number of its site, its device, and the block's
 * number within the generation (saved.h). The same names recur in every training step. The device
 * in a name also determines which store has the block.
 */
#define MEMORY_SITE_SHIFT	40
#define MEMORY_GPU		(UINT64_C(1) << 39)
#define MEMORY_DEVICE_SHIFT	31
#define MEMORY_DEVICE_MASK	UINT64_C(0xff)
#define MEMORY_ORDINAL_MASK	((UINT64_C(1) << MEMORY_DEVICE_SHIFT) - 1)

static inline uint64_t memory_name(uint64_t site, uint32_t device, bool is_gpu, uint64_t ordinal)
{
	return site << MEMORY_SITE_SHIFT | (is_gpu ? MEMORY_GPU : 0) |
	       (uint64_t)device << MEMORY_DEVICE_SHIFT | (ordinal & MEMORY_ORDINAL_MASK);
}

#endif /* LIB_XLA_KEY_H */
