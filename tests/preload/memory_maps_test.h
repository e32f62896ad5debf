/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of mappings share. For programs that the preload's files are linked into,
 * also what it exports as mmap and so on: the sanitizers have their own by these names.
 */
#ifndef MEMORY_MAPS_TEST_H
#define MEMORY_MAPS_TEST_H

#include <stdlib.h>
#include <sys/mman.h>

#include "memory_test.h"

#ifdef MEMORY_DIRECT

#include "preload/cuda/mapped.h"
#include "preload/cuda/maps.h"

static inline void *direct_mmap(void *address, size_t bytes, int protection, int flags, int fd,
				off_t offset)
{
	const struct maps_request request = { address, bytes, protection, flags, NULL };
	void *mapped = cuda_maps_take(&request);

	if (mapped)
		return mapped;
	mapped = kernel_mmap(address, bytes, protection, flags, fd, offset);
	if (flags & MAP_FIXED && mapped != MAP_FAILED && mapped_may_have(mapped, bytes))
		mapped_forget(mapped, bytes);
	return mapped;
}

static inline void *direct_mremap(void *address, size_t bytes, size_t wanted, int flags)
{
	return mapped_kind(address, bytes) == MAPPED_NOT ? mremap(address, bytes, wanted, flags) :
	       cuda_maps_move(address, bytes, wanted, flags);
}

#define mmap		direct_mmap
#define mremap		direct_mremap
#define munmap		mapped_unmap
#define madvise		mapped_advise
#define mprotect	mapped_protect

#endif

#define PAGE		4096UL
#define RW		(PROT_READ | PROT_WRITE)
#define ANONYMOUS	(MAP_PRIVATE | MAP_ANONYMOUS)

static inline char *map(size_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, RW, flags, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static inline bool regions_are(unsigned int count, uint64_t bytes)
{
	uint64_t listed;

	return own_regions(&listed) == count && listed == bytes;
}

/* Comes first, while there is one thread. */
static inline void begin_maps(void)
{
#ifdef MEMORY_DIRECT
	setenv("ACTMEM_PRELOAD_MAPS", "4M,shared,populate,hugetlb,private", 1);
	cuda_maps_begin(false);
#endif
}

#endif /* MEMORY_MAPS_TEST_H */
