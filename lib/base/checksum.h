/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A fast checksum that detects accidental changes of memory. It does not protect against an
 * attacker.
 */
#ifndef LIB_BASE_CHECKSUM_H
#define LIB_BASE_CHECKSUM_H

#include <stdint.h>

uint64_t checksum(const void *from, uint64_t bytes);

#endif /* LIB_BASE_CHECKSUM_H */
