/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Rounds lengths to whole units. */
#ifndef LIB_BASE_ROUND_H
#define LIB_BASE_ROUND_H

#include <stdint.h>

static inline uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

#endif /* LIB_BASE_ROUND_H */
