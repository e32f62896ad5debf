/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A process in malloc mode tells of itself in a memfd named TOLD_LABEL, which
 * `actmem list` finds under /proc/PID/fd and reads with pread(2). It is there from
 * the first large block on.
 */
#ifndef LIB_PRELOAD_MALLOC_TOLD_H
#define LIB_PRELOAD_MALLOC_TOLD_H

#include <stdatomic.h>
#include <stdint.h>

#define TOLD_LABEL	"actmem-malloc"
#define TOLD_MAGIC	0x6d616c6c6f633031ULL
#define TOLD_VERSION	1
#define TOLD_BYTES	4096

/* Each number by itself is right; together they may be of different moments. */
struct told {
	uint64_t magic;
	uint32_t version;
	int32_t pid;			/* as the process itself sees it */
	_Atomic uint64_t blocks;
	_Atomic uint64_t block_bytes;
	_Atomic uint64_t pooled_bytes;	/* free and not given back, at most */
	_Atomic uint64_t mapped_bytes;	/* of address space */
	_Atomic uint64_t blocks_total;
	_Atomic uint64_t refused_total;	/* that could not be had, and came from elsewhere */
};

#endif /* LIB_PRELOAD_MALLOC_TOLD_H */
