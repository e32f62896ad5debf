/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The mode of the processor's floating-point unit in which updates are computed: rounding to
 * nearest, no traps, and denormals as 0 (FTZ and DAZ on x86, FZ on Arm).
 *
 * The moments of an embedding's row decay if no token uses the row. After several hundred steps,
 * the moments are denormal. Without this mode, the moments stay denormal for ever, because 0.999 of
 * a very small number rounds to the number itself. On many processors, each operation on a denormal
 * takes more than 100 cycles. XLA's CPU backend sets the same mode.
 */
#ifndef LIB_UPDATE_MODE_H
#define LIB_UPDATE_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define MODE_UPDATE	(0x1f80 | 0x8000 | 0x0040)	/* all masked, FTZ, DAZ */

static inline uint64_t mode_get(void)
{
	return _mm_getcsr();
}

static inline void mode_set(uint64_t mode)
{
	_mm_setcsr((unsigned int)mode);
}
#elif defined(__aarch64__)
#define MODE_UPDATE	(1ULL << 24)			/* FZ */

static inline uint64_t mode_get(void)
{
	uint64_t mode;

	__asm__ volatile("mrs %0, fpcr" : "=r"(mode));
	return mode;
}

static inline void mode_set(uint64_t mode)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
#error "set the mode of this processor, in which denormals count as 0"
#endif

/* Makes outputs, which may have bypassed the caches, visible to other threads and to devices. */
static inline void mode_fence(void)
{
#if defined(__x86_64__)
	_mm_sfence();
#endif
}

#endif /* LIB_UPDATE_MODE_H */
