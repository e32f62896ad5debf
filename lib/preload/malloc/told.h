/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A process in malloc mode publishes its counters in a memfd named TOLD_LABEL. `actmem list` finds
 * it under /proc/PID/fd and reads it with pread(2). It exists from the first large block on.
 */
#ifndef LIB_PRELOAD_MALLOC_TOLD_H
#define LIB_PRELOAD_MALLOC_TOLD_H

#include <stdatomic.h>
#include <stdint.h>

#define TOLD_LABEL	"actmem-malloc"
#define TOLD_MAGIC	0x6d616c6c6f633031ULL
#define TOLD_VERSION	1
#define TOLD_BYTES	4096

/* Each counter is correct by itself, but they may be from different moments. */
struct told {
	uint64_t magic;
	uint32_t version;
	int32_t pid;			/* as the process itself sees it */
	_Atomic uint64_t blocks;
	_Atomic uint64_t block_bytes;
	_Atomic uint64_t pooled_bytes;	/* upper bound of free bytes not returned to the kernel */
	_Atomic uint64_t mapped_bytes;	/* of address space */
	_Atomic uint64_t blocks_total;
	_Atomic uint64_t refused_total;	/* large blocks that were left to the next malloc */
};

#endif /* LIB_PRELOAD_MALLOC_TOLD_H */
