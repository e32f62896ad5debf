/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program in malloc mode that registers blocks of malloc's before it touches them: they
 * stay memory of malloc's own pools, which hand them out again.
 *
 * Started with: ACTMEM_MALLOC=1 ACTMEM_MALLOC_DECAY=0
 * Started with: ACTMEM_MALLOC=1 ACTMEM_MALLOC_DECAY=0 ACTMEM_NODES=0
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory_test.h"

static size_t block_bytes;

static bool is_readable_in_a_child(void *block)
{
	return is_filled(block, block_bytes, 2);
}

static bool stays_with_malloc(void)
{
	char *block = NULL, *again;

	CHECK(!posix_memalign((void **)&block, 2 * MIB, block_bytes));
	CHECK(!api.cuMemHostRegister_v2(block, block_bytes, CU_MEMHOSTREGISTER_PORTABLE));
	CHECK(!is_in_region(block) && !is_in_region(block + block_bytes - 1));
	fill(block, block_bytes, 1);
	CHECK(!api.cuMemHostUnregister(block));
	free(block);
	again = memalign(64, block_bytes);
	CHECK(again && !is_in_region(again));
	fill(again, block_bytes, 2);
	CHECK(in_child(is_readable_in_a_child, again));
	free(again);
	return true;
}

/* Memory that is not malloc's is served as ever. */
static bool of_mmap(void)
{
	char *memory = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	/* Of its own, and not a part of what lies beside it. */
	CHECK(memory != MAP_FAILED && !mprotect(memory, 4096, PROT_READ) &&
	      !mprotect(memory + 8 * MIB - 4096, 4096, PROT_READ));
	CHECK(!api.cuMemHostRegister_v2(memory + 4096, 8 * MIB - 8192, 0));
	CHECK(is_in_region(memory + 4 * MIB) && !api.cuMemHostUnregister(memory + 4096));
	CHECK(!munmap(memory, 8 * MIB));
	return block_is_in_region(4 * MIB);
}

int main(void)
{
	static const size_t lengths[] = { 32 * MIB, 64 * MIB, 192 * MIB };
	char what[64];
	unsigned int i;

	skip_without_cuda();
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		block_bytes = lengths[i];
		snprintf(what, sizeof(what), "a block of %llu MiB stays with malloc",
			 (unsigned long long)(block_bytes / MIB));
		run_case(what, stays_with_malloc, NULL);
		told(0, "");
	}
	run_case("other memory gets regions", of_mmap, NULL);
	return tap_end();
}
